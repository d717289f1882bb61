"""Imports point one way, and `import protofission` pays for nothing heavy."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

LEVELS = [
    ["core"],
    ["fission", "system"],
    ["data", "models"],
    ["methods"],
    ["training"],
    ["pages"],
    ["experiments", "triage"],
    ["web"],
    ["cli"],
    ["__main__"],
]
"""From the bottom up: a room imports from rooms of lower levels, and from no other."""


def level(room: str) -> int:
    return next(height for height, rooms in enumerate(LEVELS) if room in rooms)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file imports from, at its top or inside its functions."""
    rooms = set()
    for node in ast.walk(parsed(path)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} has a relative import"
            names = [node.module]
            if node.module == "protofission":  # a room, or a name that the package itself has
                names = [f"protofission.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("protofission.")}
    return rooms - {"__version__"}


def test_the_public_names_are_listed_before_they_are_used() -> None:
    code = "import protofission; print(set(protofission.__all__) - set(dir(protofission)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_imports_point_one_way(project: Path) -> None:
    package = project / "src" / "protofission"
    seen = set()
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room == "__init__":
            continue  # it names what it offers, and imports it on first use
        seen.add(room)
        for other in imported_rooms(path) - {room}:
            assert level(other) < level(room), f"{path.relative_to(package)} imports {other}"
    assert seen == {room for rooms in LEVELS for room in rooms}


def test_the_rooms_are_few_and_say_what_they_are(project: Path) -> None:
    package = project / "src" / "protofission"
    entries = {path.name for path in package.iterdir() if not path.name.startswith("__")}
    assert len(entries - {"py.typed"}) <= 12
    for folder in {path.parent for path in package.rglob("*.py")}:
        sentence = ast.get_docstring(parsed(folder / "__init__.py")) or ""
        assert sentence.partition("\n")[0].endswith("."), f"{folder} does not say what it is"


def test_prediction_loads_neither_the_loop_nor_the_methods() -> None:
    code = (
        "import protofission.triage.predict, sys;"
        "print(*(name for name in sys.modules if name.startswith('protofission.')), end=' ');"
        "print(*{'scipy.stats', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "protofission.triage.calibrated_model" in loaded
    assert not [n for n in loaded if n.startswith(("protofission.methods", "protofission.cli"))]
    assert "protofission.training.loop" not in loaded
    assert "protofission.data.splits.registry" not in loaded
    assert all(name.startswith("protofission.") for name in loaded)  # others take a second


OF_HELP = {"attr", "attrs", "cyclopts", "docstring_parser", "rich"}
"""Packages that the list of verbs needs."""
OF_HELP_OF_VERBS = OF_HELP | {"markdown_it", "mdurl", "pygments"}
"""Packages that the help of a verb needs, which has markup."""


def imported_packages(code: str) -> tuple[set[str], set[str]]:
    """What code imports: packages of others, and modules of ours."""
    told = f"""
import sys
before = set(sys.modules)
{code}
names = set(sys.modules) - before
print("imported", *sorted(name for name in names if name.startswith("protofission")))
tops = {{name.partition(".")[0] for name in names}} - set(sys.stdlib_module_names)
print("imported", *sorted(tops - {{"protofission"}}))
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("imported")]
    ours, others = (set(line.split()[1:]) for line in lines)
    return others, ours


def test_importing_the_package_imports_nothing_else() -> None:
    assert imported_packages("import protofission") == (set(), {"protofission"})


def test_help_imports_what_it_shows_and_no_more() -> None:
    run = """
from protofission.cli import main
sys.argv = ["protofission", {}]
try:
    main()
except SystemExit:
    pass
"""
    for arguments, allowed in (
        ("'--help'", OF_HELP),
        ("'data', '--help'", OF_HELP),
        ("'fit', '--help'", OF_HELP_OF_VERBS),
        ("'show', '--out'", OF_HELP),
    ):
        others, ours = imported_packages(run.format(arguments))
        assert others - {"typing_extensions"} <= allowed, arguments
        rooms = {name.split(".")[1] for name in ours if "." in name}
        assert rooms <= {"cli", "core"}, arguments


def test_help_and_refusals_of_the_command_line_do_not_import_torch() -> None:
    code = """
import sys
from protofission.cli import main
for arguments in sys.argv[1:]:
    sys.argv[1:] = arguments.split()
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    print("ended", code, *(name for name in ("torch", "numpy") if name in sys.modules))
"""
    verbs = [
        "--help",
        "--version",
        "fit --help",
        "suite --help",
        "data check --help",
        "serve --help",
    ]
    refused = [
        "dmeo",
        "fit",
        "fit a b --out",
        "demo --seeds many",
        "predict model",
        "show --a=b",
        "serve",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *verbs, *refused], capture_output=True, text=True, check=True
    )
    ends = [line for line in done.stdout.splitlines() if line.startswith("ended")]
    assert ends == ["ended 0"] * len(verbs) + ["ended 2"] * len(refused)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in ast.walk(parsed(path)) if isinstance(node, kinds)]


def test_files_have_at_most_400_lines_and_functions_80(project: Path) -> None:
    """Without exceptions, the training loop included; docstrings count."""
    package = project / "src" / "protofission"
    large = []
    for path in sorted(package.rglob("*.py")):
        name, lines = path.relative_to(package), len(path.read_text().splitlines())
        if lines > 400:
            large.append(f"{name} has {lines} lines")
        for node in functions(path):
            length = (node.end_lineno or 0) - node.lineno + 1
            if length > 80:
                large.append(f"{name}: {node.name} has {length} lines")
    assert large == []


def test_reference_twins_import_nothing_of_ours(project: Path) -> None:
    files = list((project / "tests" / "reference").glob("*.py"))
    assert files
    for path in files:
        text = path.read_text()
        for name in ("protofission", "torch", "numpy", "scipy", "sklearn"):
            assert f"import {name}" not in text
            assert f"from {name}" not in text


def test_every_name_that_the_package_offers_is_there() -> None:
    import protofission

    for name in protofission.__all__:
        assert getattr(protofission, name) is not None


RIDDLES = re.compile(r"(What|How|Who|Whose|Where|Whatever|Which|That|Of|In which)\b")
VERB_PARAMETER = re.compile(r"^\w+\n {4}(\S.*)", re.MULTILINE)


def field_docstrings(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The strings right below the assignments of a class or a module."""
    for node, after in pairwise(body):
        match node, after:
            case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def test_the_docstrings_of_fields_and_of_the_parameters_of_verbs_are_found() -> None:
    tree = ast.parse('x = 1\n"""One."""\ny: int\nz: int = 2\n"""Two."""\n"""Three."""\n')
    assert list(field_docstrings(tree.body)) == ["One.", "Two."]
    text = "Do.\n\nParameters\n----------\na\n    Of it, and\n    more.\nb\n    Size."
    assert VERB_PARAMETER.findall(text) == ["Of it, and", "Size."]
    assert all(map(RIDDLES.match, ("Of it.", "How many; 3.", "In which it rises.")))
    assert not any(map(RIDDLES.match, ("Official.", "However.", "In bytes.", "Whether.")))


def test_names_are_of_one_thing_and_docstrings_start_with_a_verb_or_a_noun(project: Path) -> None:
    package = project / "src" / "protofission"
    places: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        tree, name = parsed(path), str(path.relative_to(package))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                sentences = [text]
                if isinstance(node, ast.FunctionDef):
                    sentences += VERB_PARAMETER.findall(text.partition("----------")[2])
                else:
                    sentences += field_docstrings(node.body)
                for sentence in sentences:
                    assert not RIDDLES.match(sentence), f"{name}: {sentence}"
    assert not {name: homes for name, homes in places.items() if len(homes) > 1}


def constants(path: Path) -> dict[str, ast.expr]:
    """The names in capitals that a module defines at its top, with their values."""
    found: dict[str, ast.expr] = {}
    for node in parsed(path).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and name.id.isupper() and node.value is not None:
                    found[name.id] = node.value
    return found


def test_the_name_of_a_registry_is_of_nothing_else(project: Path) -> None:
    package = project / "src" / "protofission"
    places: dict[str, list[str]] = {}
    registries = set()
    for path in sorted(package.rglob("*.py")):
        for name, value in constants(path).items():
            places.setdefault(name.lstrip("_"), []).append(str(path.relative_to(package)))
            if isinstance(value, ast.Dict | ast.DictComp):
                registries.add(name.lstrip("_"))
    assert {"METHODS", "DATASETS", "SPLITS", "VIEWS"} <= registries
    assert not {name: places[name] for name in sorted(registries) if len(places[name]) > 1}

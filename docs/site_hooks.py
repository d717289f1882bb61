"""Hooks of the docs site: sources and notebooks become pages, so that every link leads somewhere.

Pages link to files of the repository (`../src/...`) and to notebooks, as on GitHub. On the site a
linked file is a page with its text, a linked folder a page with its list, and a notebook a page
with its outputs. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
"""A link to a file: its target, and the part of it if one is named."""
HIDDEN = "---\nsearch:\n  exclude: true\n---\n"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".md": "markdown", ".toml": "toml"}
SHOWN = {".md", ".ipynb", ".png"}
"""Files of docs/ that are part of the site as they are."""
LARGEST = 200_000
"""Characters of a file that are shown."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every source that a page links to, for the notebooks and for the changelog."""
    docs, root = Path(config.docs_dir), Path(config.docs_dir).parent
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    pages = {"changelog.md": changelog.replace("](docs/", "](")}
    for notebook in sorted(docs.rglob("*.ipynb")):
        place = notebook.relative_to(docs).as_posix()
        listed = files.get_file_from_path(place)
        if listed is not None:
            files.remove(listed)
        text, pictures = notebook_page(notebook)
        pages[place] = text
        for name, content in pictures.items():
            folder = posixpath.dirname(place)
            files.append(File.generated(config, posixpath.join(folder, name), content=content))
    for page in list(files.documentation_pages()):
        for source in _sources(page.src_uri, page.content_string, docs):
            pages[_page_of(source, root)] = HIDDEN + source_page(source, root)
    for place, text in pages.items():
        name = f"{place}.md" if place.endswith(".ipynb") else place
        made = File.generated(config, name, content=text)
        if place.startswith("source/"):
            made.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(made)
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the pages of notebooks in the navigation."""
    config.nav = _renamed(config.nav)
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to sources and notebooks into links to their pages."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    docs, root = Path(config.docs_dir), Path(config.docs_dir).parent
    here = posixpath.dirname(page.file.src_uri)

    def changed(link: re.Match[str]) -> str:
        target, part = link[1], link[2] or ""
        if target.endswith(".ipynb"):
            return f"]({target}.md{part})"
        source = _source(docs / page.file.src_uri, target, docs)
        if source is None:
            return link[0]
        return f"]({posixpath.relpath(_page_of(source, root), here or '.')})"

    return LINK.sub(changed, markdown)


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by name."""
    parts, pictures = [], {}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for place, output in enumerate(cell["outputs"]):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}_{number}_{place}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![Output of the cell above]({name})")
            else:
                shown = "".join(output.get("text", data.get("text/plain", [])))
                parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", pictures


def source_page(source: Path, root: Path) -> str:
    """A file of the repository as a page, or the list of a folder."""
    title = source.relative_to(root).as_posix()
    if source.is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in source.iterdir() if p.name[0] not in "._")
        return "\n".join([f"# {title}/\n", *(f"- `{name}`" for name in names)]) + "\n"
    text = source.read_text(encoding="utf-8")[:LARGEST]
    language = LANGUAGES.get(source.suffix, "text")
    return f"# {title}\n\n````{language}\n{text}\n````\n"


def _sources(page: str, text: str, docs: Path) -> list[Path]:
    """The files and folders of the repository that a page links to."""
    found = (_source(docs / page, link[1], docs) for link in LINK.finditer(text))
    return [source for source in found if source is not None]


def _source(page: Path, target: str, docs: Path) -> Path | None:
    """The file or folder that a link means, if it is no page or picture of the site."""
    place = (page.parent / target).resolve()
    if not place.exists() or not place.is_relative_to(docs.parent):
        return None
    shown = place.is_relative_to(docs) and place.suffix in SHOWN
    return None if shown else place


def _page_of(source: Path, root: Path) -> str:
    return f"source/{source.relative_to(root).as_posix()}.md"


def _renamed(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_renamed(item) for item in nav]
    if isinstance(nav, dict):
        return {name: _renamed(item) for name, item in nav.items()}
    return f"{nav}.md" if str(nav).endswith(".ipynb") else nav

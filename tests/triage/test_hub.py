"""Models on the hub: pushed with a card, pinned, downloaded as untrusted files, bounded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundles import bundle_at
from fake_model_hub import TOKEN, FakeModelHub, Repository
from protofission import InputError, load
from protofission.triage import hub as hub_module
from protofission.triage.bundle import Bundle
from protofission.triage.bundle_files import CALIBRATION, MANIFEST, MODEL
from protofission.triage.hub import HubModel
from protofission.triage.hub_card import hub_card

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeModelHub]:
    """A hub to which this process has logged in, with an empty cache."""
    import fsspec
    from huggingface_hub import constants

    with FakeModelHub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)  # read when it was imported
        template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        fsspec.get_filesystem_class("hf").clear_instance_cache()
        yield server
        fsspec.get_filesystem_class("hf").clear_instance_cache()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return bundle_at(tmp_path / "model")


def held(hub: FakeModelHub, files: dict[str, bytes], *, private: bool = False) -> Repository:
    """A repository `o/n` that holds files."""
    found = hub.repositories["o/n"] = Repository(private)
    found.add(files)
    return found


def test_a_pushed_model_is_loaded_with_the_same_content(hub: FakeModelHub, bundle: Bundle) -> None:
    done = bundle.push_to_hub("hf://o/n", license="apache-2.0", message="First")
    repository = hub.repositories["o/n"]
    assert repository.private
    assert done.private
    assert (repository.messages[-1], done.commit) == ("First", repository.branches["main"])
    files = repository.files("main")
    assert files is not None
    assert set(files) == {".gitattributes", "README.md", MANIFEST, MODEL, CALIBRATION}
    assert {name: files[name] for name in bundle.files()} == bundle.files()
    assert any(line.startswith("PUT /lfs/") for line in hub.asked)  # tensors go by LFS
    for address in ("hf://o/n", done.address, Path("hf://o/n@main")):
        assert load(address).fingerprint == bundle.fingerprint


def test_a_revision_is_pinned_and_needs_no_network_twice(hub: FakeModelHub, tmp_path: Path) -> None:
    first, second = (bundle_at(tmp_path / name, seed=k) for k, name in enumerate(("a", "b")))
    pinned = first.push_to_hub("o/n").address
    second.push_to_hub("hf://o/n")
    second.push_to_hub("hf://o/n@candidate")
    assert load(pinned).fingerprint == first.fingerprint != second.fingerprint
    assert load("hf://o/n").fingerprint == second.fingerprint
    assert load("hf://o/n@candidate").fingerprint == second.fingerprint
    hub.asked.clear()
    assert load(pinned).fingerprint == first.fingerprint
    assert hub.asked == []
    with pytest.raises(InputError, match="is a commit, which cannot be changed"):
        first.push_to_hub(pinned)


def test_a_public_repository_wants_a_word(hub: FakeModelHub, bundle: Bundle) -> None:
    bundle.push_to_hub("hf://o/n", public=True)
    assert not hub.repositories["o/n"].private
    before = dict(hub.repositories["o/n"].commits)
    with pytest.raises(InputError, match=r"hf://o/n is public: allow that by --public"):
        bundle.push_to_hub("hf://o/n")
    assert hub.repositories["o/n"].commits == before


def test_other_peoples_files_are_not_written_over(hub: FakeModelHub, bundle: Bundle) -> None:
    repository = held(hub, {"config.json": b"{}", "README.md": b"theirs"}, private=True)
    with pytest.raises(InputError, match=r"holds something else \(config\.json\)"):
        bundle.push_to_hub("hf://o/n")
    assert len(repository.commits) == 1


def test_without_a_token_nothing_is_pushed(
    hub: FakeModelHub, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(InputError, match=r"cannot be pushed .* \(hf auth login\)"):
        bundle.push_to_hub("hf://o/n")
    assert hub.repositories == {}


@pytest.mark.parametrize(
    "address",
    ["hf://o", "hf://o/n/more", "hf://../n", "hf://o/n@", "hf://o/n@../x", "hf:///n", "o/n n", ""],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InputError, match=r"give hf://OWNER/NAME"):
        HubModel.parse(address)


def test_a_model_that_is_not_there_is_one_sentence(hub: FakeModelHub) -> None:
    with pytest.raises(InputError, match=r"^hf://o/n cannot be had \(.*\): see that it exists"):
        load("hf://o/n")
    with pytest.raises(InputError, match=r"^hf://o/n@[0a]+ cannot be had"):
        load(f"hf://o/n@{'0a' * 20}")


def test_what_is_no_bundle_is_refused_and_not_kept(
    hub: FakeModelHub, bundle: Bundle, tmp_path: Path
) -> None:
    files = bundle.files()
    changed = json.loads(files[MANIFEST])
    changed["class_names"][0] = "dolphin"
    cases: list[tuple[dict[str, bytes], str]] = [
        ({"config.json": b"{}"}, MANIFEST),
        ({**files, MODEL: files[MODEL][:-1] + b"?"}, "model.safetensors is not as it was saved"),
        ({**files, MANIFEST: json.dumps(changed).encode()}, "bundle.json is not as it was saved"),
        ({name: files[name] for name in (MANIFEST, MODEL)}, CALIBRATION),
        ({**files, MODEL: files[MODEL] + bytes(2**20)}, "model.safetensors has more than"),
    ]
    for content, reason in cases:
        repository = held(hub, content)
        with pytest.raises(InputError, match=reason):
            load("hf://o/n")
        folder = tmp_path / "cache" / "protofission" / "hub" / "o" / "n"
        assert not (folder / repository.branches["main"] / MANIFEST).exists()
    held(hub, files)
    assert load("hf://o/n").fingerprint == bundle.fingerprint


def test_a_file_is_not_read_beyond_its_bound(
    hub: FakeModelHub, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(hub, {**bundle.files(), MODEL: bytes(2**25)})
    read: dict[str, int] = {}
    honest = hub_module.read_remote

    def counted(url: str, most: int) -> bytes:
        content = honest(url, most)
        read[url.rpartition("/")[2]] = len(content)
        return content

    monkeypatch.setattr(hub_module, "read_remote", counted)
    with pytest.raises(InputError, match=r"model\.safetensors has more than"):
        load("hf://o/n")
    assert 0 < read[MODEL] < 2**20


def test_the_card_is_searched_by_the_hub_and_says_all_facts_as_code(bundle: Bundle) -> None:
    text = hub_card(bundle, "o/n", "cc-by-4.0")
    _, front, rest = text.split("---\n", 2)
    about: Any = yaml.safe_load(front)
    assert about["library_name"] == "protofission"
    assert about["license"] == "cc-by-4.0"
    assert "open-set-recognition" in about["tags"]
    assert 'load("hf://o/n")' in rest
    for line in bundle.card_lines():
        assert line in rest
    with pytest.raises(InputError, match="is no name of a license"):
        bundle.push_to_hub("o/n", license="free\ntags: []")


def test_no_name_of_a_class_ends_the_code_of_the_card(tmp_path: Path) -> None:
    made = bundle_at(tmp_path / "model")
    hostile = Bundle.of(
        made.calibrated_model,
        ("cat", "````\n# <script>"),
        made.encoder_spec,
        made.encoder_facts,
        made.calibration,
    )
    facts = hub_card(hostile, "o/n").partition("## Facts\n\n")[2]
    fence = facts.partition("text")[0]
    assert len(fence) == 5
    assert facts.count(fence) == 2
    assert facts.endswith(f"\n{fence}\n")


def test_the_verbs_push_pack_and_predict(
    hub: FakeModelHub,
    bundle: Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import sys

    from pictures import picture
    from protofission.cli import main

    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "new" / "a.png", 0, side=8)
    results = []
    for line in (
        "push model hf://o/n --json",
        "pack hf://o/n copy.zip --json",
        "show hf://o/n --json",
        "predict hf://o/n new --processes 1 --json",
    ):
        monkeypatch.setattr(sys, "argv", ["protofission", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
        results.append(json.loads(capsys.readouterr().out)["result"])
    pushed, packed, shown, predicted = results
    assert pushed["address"] == f"hf://o/n@{hub.repositories['o/n'].branches['main']}"
    assert packed["fingerprint"] == shown["fingerprint"] == bundle.fingerprint
    assert load("copy.zip").fingerprint == bundle.fingerprint
    assert [row["path"] for row in predicted["images"]] == ["new/a.png"]

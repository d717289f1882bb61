"""Weights know their digest: a bit that flips anywhere in a file of ours is seen, at every use."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from protofission.core.errors import InputError
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.weight_files import read_card, read_tensors
from protofission.system.tensor_files import DIGEST, pack_tensors, texts_of, unpack_tensors
from protofission.training.packed_backbone import write_backbone
from protofission.training.run import perform
from protofission.training.run_folder import RunFolder
from runs import digits, small

TINY = (
    *("backbone.width=1", "backbone.blocks=1", "recipe.epochs=1"),
    "recipe.trainable_stages=none",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run whose files are as small as can be."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    for _ in perform(small("supervised", *TINY), digits(), folder):
        pass
    return folder


def flipped(content: bytes) -> Iterator[bytes]:
    """Bits flipped: all of the header's length and of what tells that there is a digest, and others
    all over the file."""
    places = [(place, place % 8) for place in range(0, len(content), 5)]
    for start, size in (
        (0, 8),
        (content.index(b"__metadata__") - 1, 16),
        (content.index(DIGEST.encode()) - 1, len(DIGEST) + 4),
    ):
        places += [(place, bit) for place in range(start, start + size) for bit in range(8)]
    for place, bit in [*places, (len(content) - 1, 7)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        yield bytes(damaged)


def all_refused(path: Path, use: Callable[[], object]) -> None:
    """Whether each use of a file is refused whose bits are flipped, and none other."""
    content, tried = path.read_bytes(), 0
    use()
    try:
        for damaged in flipped(content):
            path.write_bytes(damaged)
            with pytest.raises(InputError, match="damaged"):
                use()
            tried += 1
    finally:
        path.write_bytes(content)
    assert tried > 700
    use()


def test_a_flipped_bit_of_a_run_s_weights_is_seen(run: RunFolder) -> None:
    path = run.path / "weights.safetensors"
    all_refused(path, run.weights)
    all_refused(path, lambda: read_tensors(str(run.path)))


def test_a_flipped_bit_of_a_state_is_seen(run: RunFolder) -> None:
    all_refused(run.path / "state.safetensors", run.saved_state)


def test_a_flipped_bit_of_a_packed_backbone_is_seen(run: RunFolder, tmp_path: Path) -> None:
    path = tmp_path / "packed.safetensors"
    write_backbone(run, path)
    all_refused(path, lambda: read_tensors(str(path)))


def test_every_use_of_a_run_s_weights_looks_at_them(run: RunFolder, tmp_path: Path) -> None:
    path = run.path / "weights.safetensors"
    content = path.read_bytes()
    uses: list[Callable[[], object]] = [
        lambda: write_backbone(run, tmp_path / "packed.safetensors"),
        lambda: OwnBackbone(str(run.path)).load(),
        lambda: next(
            perform(
                small("orca", *TINY, f"backbone.weights={run.path}"), digits(), RunFolder(tmp_path)
            )
        ),
    ]
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        for use in uses:
            with pytest.raises(InputError, match=r"weights\.safetensors is (missing or )?damaged"):
                use()
    finally:
        path.write_bytes(content)
    uses[0]()
    uses[1]()


def test_files_of_earlier_versions_open(run: RunFolder, tmp_path: Path) -> None:
    """They have no digest; a state has one of its numbers alone, under another name."""
    old = RunFolder(tmp_path / "old")
    for name in ("experiment.json", "finished"):
        old.write(name, (run.path / name).read_bytes())
    weights = run.weights()
    old.write("weights.safetensors", save_tensors(weights))
    assert old.weights().keys() == read_tensors(str(old.path)).keys() == weights.keys()
    OwnBackbone(str(old.path)).load()
    write_backbone(run, tmp_path / "new.safetensors")
    content = (tmp_path / "new.safetensors").read_bytes()
    packed, card = tmp_path / "old.safetensors", texts_of(content)["card"]
    packed.write_bytes(save_tensors(load_tensors(content), {"card": card}))
    assert read_card(str(packed)) == json.loads(card)
    OwnBackbone(str(packed)).load()
    for name in ("simclr-cifar10", "simclr-cifar100"):
        assert DIGEST not in texts_of(_packaged(name))
        OwnBackbone(name).load()


def _packaged(name: str) -> bytes:
    from protofission.models.weight_files import packaged_weights

    return packaged_weights()[name].read_bytes()


STATE = {"step": torch.tensor(3), "weight": torch.arange(6.0).reshape(2, 3)}
OLD_DIGEST = "358d17c18aa682528aa2aec6d75f93e0"


def test_a_state_of_an_earlier_version_opens_and_is_checked(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    progress = {"history": [], "steps": [], "digest": OLD_DIGEST}
    folder.write("state.safetensors", save_tensors(STATE, {"progress": json.dumps(progress)}))
    saved = folder.saved_state()
    assert saved is not None
    assert torch.equal(saved[0]["weight"], STATE["weight"])
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match="damaged"):
        folder.saved_state()


def test_json_without_end_in_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.safetensors"
    for header in (b"[" * 100_000, b'{"a":' * 50_000, b'{"__metadata__":{"a":1}}'):
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(InputError, match="damaged or no safetensors file"):
            read_tensors(str(path))
        assert read_card(str(path)) == {}
    path.write_bytes(save_tensors(STATE, {"card": "[" * 100_000}))
    assert read_card(str(path)) == {}
    assert read_tensors(str(path)).keys() == STATE.keys()


def test_metadata_of_others_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    for texts in ({"format": "pt"}, {"card": "no card of ours", "format": "pt"}):
        path.write_bytes(save_tensors(STATE, texts))
        assert read_tensors(str(path)).keys() == STATE.keys()
        assert read_card(str(path)) == {}


def test_the_same_values_are_the_same_bytes() -> None:
    content = pack_tensors(STATE, card="{}", progress="[]")
    tensors, texts = unpack_tensors(content)
    assert all(torch.equal(tensors[name], STATE[name]) for name in STATE)
    assert texts == {"card": "{}", "progress": "[]", DIGEST: texts[DIGEST]}
    assert {pack_tensors(STATE, progress="[]", card="{}") for _ in range(50)} == {content}


def test_tensors_come_by_name() -> None:
    names = [f"tensor {number}" for number in range(50)]  # the library gives them in any order
    content = pack_tensors({name: torch.zeros(1) for name in reversed(names)})
    assert list(unpack_tensors(content)[0]) == sorted(names)


def test_a_run_that_lacks_its_state_is_not_packed(run: RunFolder, tmp_path: Path) -> None:
    path = run.path / "state.safetensors"
    kept = path.rename(tmp_path / "kept")
    for damage in (lambda: None, lambda: path.symlink_to(path)):
        damage()
        with pytest.raises(InputError, match="safetensors"):
            write_backbone(run, tmp_path / "packed.safetensors")
        assert not (tmp_path / "packed.safetensors").exists()
    path.unlink()
    kept.rename(path)

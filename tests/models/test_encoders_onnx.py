"""Networks in .onnx files: equal to torch, and files that point elsewhere are not followed."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from protofission.core.errors import InputError
from protofission.models.encoders.onnx_external_data import MalformedError, data_files
from protofission.models.encoders.onnx_network import Onnx
from protofission.models.encoders.preprocessing import STANDARDS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_models import KERNEL, external, helper, model  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def write(folder: Path, content: bytes, name: str = "net.onnx") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def images(number: int, side: int = 8, channels: int = 3) -> Tensor:
    rng = torch.Generator().manual_seed(number)
    return torch.rand(number, channels, side, side, generator=rng)


def twin(batch: Tensor, pixels: str = "imagenet") -> Tensor:
    mean, deviation = (torch.tensor(v).view(-1, 1, 1) for v in STANDARDS[pixels])  # type: ignore[index]
    return F.conv2d((batch - mean) / deviation, torch.from_numpy(KERNEL))


TOKENS = (
    helper.make_node("Constant", [], ["shape"], value_ints=[0, 0, -1]),
    helper.make_node("Reshape", ["maps", "shape"], ["flat"]),
    helper.make_node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
)


def test_maps_are_averaged_and_of_tokens_the_first_is_taken(tmp_path: Path) -> None:
    batch = images(19)
    encoder = Onnx(write(tmp_path, model())).load()
    assert (encoder.kind, encoder.size, encoder.channels, encoder.num_features) == ("onnx", 8, 3, 5)
    torch.testing.assert_close(encoder.features(batch), twin(batch).mean((2, 3)), atol=1e-5, rtol=0)
    tokens = write(tmp_path, model(nodes=TOKENS, output="tokens"), "tokens.onnx")
    found = Onnx(tokens, pixels="clip").load().features(batch)
    torch.testing.assert_close(found, twin(batch, "clip")[:, :, 0, 0], atol=1e-5, rtol=0)


def test_a_vector_is_taken_as_it_is_at_any_number_of_images(tmp_path: Path) -> None:
    flat = helper.make_node("Flatten", ["maps"], ["vector"])
    content = model(("n", 3, None, None), nodes=(flat,), output="vector", more=("maps",))
    source = write(tmp_path, content)
    encoder = Onnx(source, size=6, output="vector", pixels="unit").load()
    assert encoder.num_features == 5 * 4 * 4
    found = encoder(images(3, 6))
    torch.testing.assert_close(found, twin(images(3, 6), "unit").flatten(1), atol=1e-5, rtol=0)
    assert encoder.describe()["output"] == "vector"
    assert Onnx(source, size=6, output="maps").load().fingerprint != encoder.fingerprint
    with pytest.raises(InputError, match="leaves the size of images open: set size="):
        Onnx(source, output="vector").load()
    with pytest.raises(InputError, match="has the outputs vector, maps: say which one"):
        Onnx(source, size=6).load()
    with pytest.raises(InputError, match=r"Unknown output 'vectr'\. Did you mean 'vector'"):
        Onnx(source, size=6, output="vectr").load()


def test_a_fixed_batch_is_filled_up(tmp_path: Path) -> None:
    encoder = Onnx(write(tmp_path, model((4, 3, 8, 8)))).load()
    assert encoder.chunk == 4
    for number in (0, 1, 4, 6):
        batch = images(number)
        wanted = twin(batch).mean((2, 3))
        torch.testing.assert_close(encoder.features(batch), wanted, atol=1e-5, rtol=0)
        prepared = encoder.prepare(batch)
        torch.testing.assert_close(encoder(prepared), wanted, atol=1e-5, rtol=0)


def test_gray_networks(tmp_path: Path) -> None:
    kernel = onnx.numpy_helper.from_array(KERNEL[:, :1], "kernel")
    source = write(tmp_path, model(("n", 1, 8, 8), kernel))
    encoder = Onnx(source, pixels="half").load()
    gray = images(2, channels=1)
    assert encoder.channels == 1
    torch.testing.assert_close(encoder.features(gray), encoder.features(gray.repeat(1, 3, 1, 1)))
    with pytest.raises(InputError, match="by pixels=unit"):
        Onnx(source).load()


def test_a_fingerprint_is_of_the_file_the_data_and_the_preprocessing(tmp_path: Path) -> None:
    kernel = external("kernel", "data/kernel.bin", KERNEL.shape)
    source = write(tmp_path, model(kernel=kernel))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kernel.bin").write_bytes(KERNEL.tobytes())
    first = Onnx(source).load()
    torch.testing.assert_close(first(images(2)), twin(images(2), "unit").mean((2, 3)))
    assert Onnx(source, pixels="half").load().fingerprint != first.fingerprint
    moved = tmp_path.rename(tmp_path.parent / (tmp_path.name + "-moved"))
    other = (moved / "net.onnx").rename(moved / "other.onnx")
    assert Onnx(str(other)).load().fingerprint == first.fingerprint
    (moved / "data" / "kernel.bin").write_bytes(KERNEL[::-1].tobytes())
    assert Onnx(str(other)).load().fingerprint != first.fingerprint


@pytest.mark.parametrize("how", ["above", "absolute", "link", "missing", "folder"])
def test_data_outside_the_folder_is_not_read(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    (inside / "folder").mkdir(parents=True)
    (tmp_path / "kernel.bin").write_bytes(KERNEL.tobytes())
    (inside / "link").symlink_to("../kernel.bin")
    location = {"above": "../kernel.bin", "absolute": str(tmp_path / "kernel.bin")}.get(how, how)
    source = write(inside, model(kernel=external("kernel", location, KERNEL.shape)))
    reached: list[object] = []
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda *_, **__: reached.append(1))
    with pytest.raises(InputError, match="is missing or outside its folder, and is not read"):
        Onnx(source).load()
    assert not reached
    (inside / "kernel.bin").write_bytes(KERNEL.tobytes())
    write(inside, model(kernel=external("kernel", "kernel.bin", KERNEL.shape)))
    with pytest.raises(AttributeError):  # no session was made
        Onnx(source).load()
    assert reached


def test_data_is_found_wherever_a_tensor_can_be() -> None:
    def constant(location: str) -> Any:
        return helper.make_node("Constant", [], ["c"], value=external("c", location, (2,)))

    inner = helper.make_graph([constant("d")], "inner", [], [], [external("i", "c", (2,))])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [constant("e")], [helper.make_opsetid("", 17)]
    )
    sparse = onnx.SparseTensorProto(
        values=external("v", "f", (2,)), indices=external("v", "g", (2,)), dims=[2]
    )
    graph = helper.make_graph([branch], "g", [], [], [external("w", "b", (2,))])
    graph.sparse_initializer.append(sparse)
    net = helper.make_model(graph, functions=[function])
    assert data_files(net.SerializeToString()) == ["b", "c", "d", "e", "f", "g"]
    assert data_files(model()) == []


@given(st.binary(max_size=60), st.integers(0, 200))
def test_any_bytes_are_read_or_refused(rubbish: bytes, place: int) -> None:
    good = model(kernel=external("kernel", "x", KERNEL.shape))
    for content in (rubbish, good[:place] + rubbish + good[place:]):
        with suppress(MalformedError):
            assert all(isinstance(name, str) for name in data_files(content))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"no features|cannot be loaded|has 0 inputs"),
        (b"rubbish", "is damaged or no .onnx file: export it again"),
        (model()[:-20], "is damaged or no .onnx file|cannot be loaded"),
        (model(("n", 3, 8)), "not floats of the shape n x 1 or 3 x size|cannot be loaded"),
        (model(("n", 8, 8, 3)), "not floats of the shape|cannot be loaded"),
        (model(("n", 3, 8, 9)), "takes images of 8 x 9, not squares"),
        (model(nodes=(helper.make_node("Nonsense", ["maps"], ["y"]),)), "cannot be loaded"),
        (
            model(nodes=(helper.make_node("Shape", ["maps"], ["y"]),), output="y", out=7),
            "gives 4 of torch.int64 at y, not features, tokens or maps",
        ),
    ],
)
def test_files_that_are_no_encoder_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    source = write(tmp_path, content)
    with pytest.raises(InputError, match=words) as refused:
        Onnx(source).load()
    assert "\n" not in str(refused.value)


def test_other_refusals(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"nothing\.onnx is no file: give one that ends in \.onnx"):
        Onnx("nothing.onnx").load()
    with pytest.raises(InputError, match="takes images of 8 x 8, not 16: leave size= out"):
        Onnx(write(tmp_path, model()), size=16).load()
    pooled = helper.make_node("ReduceMean", ["maps"], ["y"], axes=[0])
    with pytest.raises(InputError, match=r"gives \(1, 5\) for 2 images, which are no features"):
        Onnx(write(tmp_path, model(nodes=(pooled,), output="y"))).load()
    nan = onnx.numpy_helper.from_array(KERNEL * np.float32("nan"), "kernel")
    with pytest.raises(InputError, match="gives NaN or infinite features"):
        Onnx(write(tmp_path, model(kernel=nan))).load()
    assert capfd.readouterr() == ("", "")

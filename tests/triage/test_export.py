"""Exported models say what torch says, wherever onnxruntime runs, or are not written."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bundles import encoder_at
from protofission.core.errors import InputError
from protofission.data.image_sets import floats
from protofission.data.readers.decode import Decoding, decode
from protofission.models.encoders.base import EncoderSpec
from protofission.models.encoders.efficientnet import EfficientNetLite
from protofission.models.encoders.onnx_network import Onnx
from protofission.triage import export as module
from protofission.triage.bundle import Bundle
from protofission.triage.calibrated_model import ACCEPT, DECISIONS, NOVEL, REJECT, Verdicts
from protofission.triage.export import OUTPUTS, TOLERANCE, export
from small_bundles import bundle_of, features

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
runtime = pytest.importorskip("onnxruntime")

SIDE = 64
NAMES = ("cat", "dog, big\n", "Kuh \u725b")
INTEGERS = ("class", "subclass", "decision", "cluster")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def session_of(content: Path | bytes) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    source = str(content) if isinstance(content, Path) else content
    return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def ran(session: Any, inputs: Tensor) -> dict[str, NDArray[Any]]:
    (one,) = session.get_inputs()
    return dict(zip(OUTPUTS, session.run(list(OUTPUTS), {one.name: inputs.numpy()}), strict=True))


def said_by(verdicts: Verdicts) -> dict[str, NDArray[Any]]:
    values = {
        "class": verdicts.classes,
        "probability": verdicts.probs.amax(-1),
        "id_score": verdicts.id_scores,
        "subclass": verdicts.subclasses,
        "decision": verdicts.decisions,
        "cluster": verdicts.clusters,
        "probs": verdicts.probs,
    }
    return {name: value.numpy() for name, value in values.items()}


def agree(found: dict[str, NDArray[Any]], wanted: dict[str, NDArray[Any]]) -> None:
    for name in OUTPUTS:
        assert found[name].dtype == (np.int64 if name in INTEGERS else np.float32)
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-4, err_msg=name)


def pixels(rows: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (rows, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)


def with_threshold(path: Path, value: np.float32) -> bytes:
    """The file with another threshold in it."""
    model = onnx.load(str(path))
    (threshold,) = [t for t in model.graph.initializer if t.name.endswith("threshold")]
    threshold.CopyFrom(onnx.numpy_helper.from_array(np.array(value), threshold.name))
    content: bytes = model.SerializeToString()
    return content


def exported(spec: EncoderSpec, folder: Path) -> tuple[Bundle, Path]:
    """A model on an encoder that accepts about half of all noise, and its file."""
    encoder = spec.load()
    bundle = bundle_of(spec=spec, facts=encoder.describe(), names=NAMES, card={"n": 3})
    scores = bundle.calibrated_model(encoder.features(floats(pixels(9)))).id_scores
    bundle.calibrated_model.threshold.copy_(scores.sort().values[4:6].mean())
    before = torch.random.get_rng_state()
    export(bundle, folder / "model.onnx")
    assert torch.equal(before, torch.random.get_rng_state())
    assert [each.name for each in folder.iterdir()] == ["model.onnx"]
    return bundle, folder / "model.onnx"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    """A model on a small residual network."""
    spec = encoder_at(tmp_path_factory.mktemp("encoder") / "small.safetensors")
    return exported(replace(spec, size=SIDE), tmp_path_factory.mktemp("export"))


@pytest.mark.slow
def test_pixels_of_the_packaged_encoder_become_what_torch_says(tmp_path: Path):
    pixels_agree(*exported(EfficientNetLite(size=SIDE), tmp_path))


def test_pixels_become_what_torch_says_in_batches_of_any_size(real: tuple[Bundle, Path]):
    pixels_agree(*real)


def pixels_agree(bundle: Bundle, path: Path) -> None:
    session, encoder = session_of(path), bundle.encoder()
    (one,) = session.get_inputs()
    assert (one.name, one.type, one.shape[1:]) == ("images", "tensor(uint8)", [3, SIDE, SIDE])
    decisions: set[int] = set()
    for rows in (1, 3, 7):
        images = pixels(rows, seed=rows)
        features = encoder.features(floats(images)).numpy()
        found = ran(session, images)
        agree(found, said_by(bundle.predict_features(features)))
        decisions |= set(found["decision"].tolist())
    assert decisions == {ACCEPT, REJECT}


def test_an_image_exactly_at_the_threshold_is_accepted(real: tuple[Bundle, Path]):
    images = pixels(3)
    scores = ran(session_of(real[1]), images)["id_score"]
    for row, score in enumerate(scores):
        for threshold, wanted in (
            (score, ACCEPT),
            (np.nextafter(score, np.float32(-np.inf)), ACCEPT),
            (np.nextafter(score, np.float32(np.inf)), REJECT),
        ):
            found = ran(session_of(with_threshold(real[1], threshold)), images)
            assert found["decision"][row] == wanted


def test_names_and_card_are_in_the_file_and_this_machine_is_not(
    real: tuple[Bundle, Path], project: Path
):
    bundle, path = real
    held = session_of(path).get_modelmeta().custom_metadata_map
    about = {key: json.loads(value) for key, value in held.items()}
    assert tuple(about["class_names"]) == NAMES
    assert [tuple(own) for own in about["subclass_names"]] == list(bundle.subclass_names)
    assert about["cluster_names"] == []
    assert tuple(about["decisions"]) == DECISIONS
    assert about["card"] == {"n": 3}
    assert about["input"] == "images"
    assert about["encoder"]["fingerprint"] == bundle.encoder_facts["fingerprint"]
    content = path.read_bytes()
    assert str(project).encode() not in content
    assert str(Path(torch.__file__).parent).encode() not in content
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)


WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = sys.modules["protofission"] = None
try:
    import torch
except ImportError:
    runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_the_example_needs_no_torch(real: tuple[Bundle, Path], project: Path, tmp_path: Path):
    bundle, path = real
    example = project / "examples" / "onnx_without_torch.py"
    random = np.random.default_rng(0)
    smooth = Image.fromarray(random.integers(0, 256, (9, 12, 3), np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    smooth.resize((300, 200)).save(tmp_path / "a photo.jpg", exif=turned)
    smooth.resize((40, 90)).save(tmp_path / "small.png")
    smooth.resize((70, 70)).convert("L").save(tmp_path / "grey.png")
    smooth.resize((70, 80)).convert("P").save(tmp_path / "palette.gif")
    files = sorted(tmp_path.iterdir())
    arguments = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, example, path, *files]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    arrays = [decode(file.read_bytes(), Decoding(SIDE, SIDE)) for file in files]
    features = bundle.encoder().features(floats(torch.from_numpy(np.stack(arrays))))
    wanted = said_by(bundle.predict_features(features.numpy()))
    assert [line["path"] for line in said] == list(map(str, files))
    for row, line in enumerate(said):
        label = wanted["class"][row]
        assert line["class"] == NAMES[label]
        assert line["subclass"] == bundle.subclass_names[label][wanted["subclass"][row]]
        assert line["decision"] == DECISIONS[wanted["decision"][row]]
        assert line["probability"] == pytest.approx(wanted["probability"][row], abs=1e-4)
        assert line["id_score"] == pytest.approx(wanted["id_score"][row], abs=1e-4)


def test_the_example_has_at_most_twenty_lines_of_code(project: Path):
    lines = (project / "examples" / "onnx_without_torch.py").read_text().splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith(('"""', "#"))]) <= 20


CASES = [
    ("linear", "none", 0),
    ("cosine", "mlp", 2),
    ("tied", "linear", 2),
    ("fission", "linear", -2),
    ("distance", "rectified", 2),
]
"""A number below 0 is of heads that stand for no clusters."""


@pytest.mark.parametrize(("head", "adapter", "novel"), CASES)
def test_features_become_what_torch_says(head: str, adapter: str, novel: int, tmp_path: Path):
    bundle = bundle_of(head, adapter, abs(novel), clusters=novel >= 0)
    rows = features(60)
    bundle.calibrated_model.threshold.copy_(bundle.calibrated_model(rows).id_scores.median() + 1e-3)
    path = tmp_path / "model.onnx"
    export(bundle, path, input="features")
    session = session_of(path)
    for size in (1, 3, 60):
        agree(ran(session, rows[:size]), said_by(bundle.predict_features(rows[:size].numpy())))
    found = ran(session, rows)
    assert set(found["decision"].tolist()) == {ACCEPT, NOVEL if novel > 0 else REJECT}
    assert ((found["cluster"] >= 0) == (found["decision"] == NOVEL)).all()
    held = session.get_modelmeta().custom_metadata_map
    assert json.loads(held["cluster_names"]) == list(bundle.cluster_names)


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_file_that_says_something_else_is_not_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each output is spoilt in its turn, by as little as it can be."""
    bundle = bundle_of("fission", novel=3, threshold=0.0)

    class Session:
        spoil = False

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def run(self, names: Any, inputs: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
            said = said_by(bundle.predict_features(inputs["features"]))
            if self.spoil and name == "cluster":
                said[name] = np.where(said[name] >= 0, (said[name] + 1) % 3, said[name])
            elif self.spoil and name == "decision":
                said[name][0] = NOVEL - said[name][0]
            elif self.spoil and name in ("class", "subclass"):
                said[name][0] = (said[name][0] + 1) % 3
            elif self.spoil:
                said[name] += np.float32(3 * TOLERANCE)
            return [said[each] for each in names]

    monkeypatch.setattr(module, "_convert", lambda *_: b"a model")
    monkeypatch.setattr(runtime, "InferenceSession", Session)
    export(bundle, tmp_path / "right.onnx", input="features")
    assert (tmp_path / "right.onnx").read_bytes() == b"a model"
    Session.spoil = True
    with pytest.raises(InputError, match=r"wrong\.onnx is not written, because onnxruntime and"):
        export(bundle, tmp_path / "wrong.onnx", input="features")
    assert [path.name for path in tmp_path.iterdir()] == ["right.onnx"]


def test_no_number_is_a_difference():
    nan, one = torch.tensor([torch.nan]), torch.ones(1)
    assert module._largest_difference(nan, one) == module._largest_difference(one, nan) == torch.inf
    assert module._largest_difference(
        torch.tensor([1001.0]), torch.tensor([1000.0])
    ) == pytest.approx(1e-3)


def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "there.onnx").write_text("mine")
    bundle = bundle_of()
    with pytest.raises(InputError, match=r"must end in \.onnx"):
        export(bundle, tmp_path / "model.pt")
    with pytest.raises(InputError, match="is there already"):
        export(bundle, tmp_path / "there.onnx")
    with pytest.raises(InputError, match=r"Unknown input 'pixels'.*features, images"):
        export(bundle, tmp_path / "m.onnx", input="pixels")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not the one that the model was"):
        export(bundle, tmp_path / "m.onnx")
    with monkeypatch.context() as smaller:
        smaller.setattr(module, "MOST_ONNX_BYTES", 100)
        with pytest.raises(InputError, match=r"2 GiB: export with input=.features"):
            export(bundle, tmp_path / "m.onnx", input="features")
    with monkeypatch.context() as broken:
        broken.setattr(torch.export, "export", lambda *_, **__: 1 / 0)
        with pytest.raises(InputError, match=r"ZeroDivisionError: .*input=.features"):
            export(bundle, tmp_path / "m.onnx", input="features")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(InputError, match=r"needs onnxscript: pip install .protofission\[export\]"):
        export(bundle, tmp_path / "m.onnx", input="features")
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]
    assert (tmp_path / "there.onnx").read_text() == "mine"


def test_an_encoder_that_is_an_onnx_file_is_not_merged(tmp_path: Path):
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    kernel = np.random.default_rng(0).normal(size=(5, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["images", "kernel"], ["maps"])],
        "net",
        [helper.make_tensor_value_info("images", kind, ("n", 3, 8, 8))],
        [helper.make_tensor_value_info("maps", kind, None)],
        [onnx.numpy_helper.from_array(kernel, "kernel")],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    spec = Onnx(str(tmp_path / "net.onnx"))
    bundle = bundle_of(spec=spec, facts=spec.load().describe())
    with pytest.raises(InputError, match=r"an .onnx file itself.*input=.features"):
        export(bundle, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()

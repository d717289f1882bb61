"""Pretrained weights: names translated exactly, a misfit refused whole, files never run."""

import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch import Tensor, nn

from protofission.core.errors import InputError
from protofission.core.rng import step_rng
from protofission.models import weight_files
from protofission.models.backbones import BACKBONES, Backbone, BackboneSpec
from protofission.models.checkpoints import LoadReport, compare, load_backbone
from protofission.models.tensor_names import OURS
from protofission.models.weight_files import packaged_weights

Tensors = dict[str, Tensor]
WIDTH = 8
GENERAL = "choose another backbone= or set backbone.stem, backbone.width, backbone.blocks"


class Basic(nn.Module):
    """As in torchvision, with the name of the shortcut left open."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.skip = shortcut
        if stride != 1 or inputs != width:
            self.add_module(shortcut, projection(inputs, width, stride))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + getattr(self, self.skip, nn.Identity())(x))


class Bottleneck(nn.Module):
    """As in torchvision: the stride is that of the 3 x 3 convolution."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.skip = shortcut
        if stride != 1 or inputs != 4 * width:
            self.add_module(shortcut, projection(inputs, 4 * width, stride))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(torch.relu(self.bn2(self.conv2(out)))))
        return torch.relu(out + getattr(self, self.skip, nn.Identity())(x))


def projection(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """torchvision's ResNet, narrow, with its stem or CIFAR's; every number is random."""

    def __init__(
        self,
        block: type[Basic | Bottleneck] = Basic,
        blocks: tuple[int, ...] = (2, 2, 2, 2),
        stem: str = "cifar",
        channels: int = 3,
        shortcut: str = "downsample",
        modules: tuple[str, ...] = ("relu", "maxpool"),
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        side, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.conv1 = nn.Conv2d(channels, WIDTH, side, stride, side // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        if "relu" in modules:
            self.relu = nn.ReLU()
        if stem == "imagenet":
            self.maxpool: nn.Module = nn.MaxPool2d(3, 2, 1)
        elif "maxpool" in modules:
            self.maxpool = nn.Identity()
        inputs = WIDTH
        for stage, number in enumerate(blocks):
            layers = []
            for place in range(number):
                width, stride = WIDTH * 2**stage, 2 if stage and not place else 1
                layers.append(block(inputs, width, stride, shortcut))
                inputs = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages = len(blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, 10)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1)
                nn.init.normal_(module.bias, 0, 0.1)
                module.running_mean = torch.randn(module.num_features) * 0.1
                module.running_var = torch.rand(module.num_features) + 0.5
                module.num_batches_tracked = torch.tensor(7)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(x)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return cast(Tensor, self.avgpool(x)).flatten(1)


def ours(name: str = "resnet18", channels: int = 3, seed: int = 0, **changes: Any) -> Backbone:
    spec = replace(BACKBONES[name], width=WIDTH, **changes)
    return spec.build(channels, step_rng(seed, 0, "backbone"))


def theirs(prefix: str = "", **how: Any) -> Tensors:
    return {prefix + name: value for name, value in ResNet(**how).state_dict().items()}


def number_names(prefix: str = "f.", **how: Any) -> Tensors:
    """A ResNet's tensors by their positions in a Sequential, as torch counts them."""
    children = list(ResNet(**how).children())
    return {prefix + name: value for name, value in nn.Sequential(*children).state_dict().items()}


def watch(backbone: Backbone) -> Callable[[], bool]:
    """A function that tells whether the backbone is still as it is now."""
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    return lambda: same(before, backbone.state_dict())


def same(first: Tensors, second: Tensors) -> bool:
    return list(first) == list(second) and all(
        value.dtype == second[name].dtype and torch.equal(value, second[name])
        for name, value in first.items()
    )


def save_as(tensors: Any, path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    else:
        torch.save(tensors, path)
    return str(path)


def refusal(backbone: Backbone, source: str) -> str:
    """The one sentence of a refusal, which leaves everything as it was."""
    untouched = watch(backbone)
    with pytest.raises(InputError) as caught:
        load_backbone(backbone, source)
    assert untouched()
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert sentence.endswith(".")
    return sentence


def number_of(report: LoadReport) -> tuple[int, ...]:
    return tuple(
        len(kind)
        for kind in (
            report.missing,
            report.unexpected,
            report.misshapen,
            report.left_out,
            report.kept,
        )
    )


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@pytest.mark.parametrize(
    ("name", "block", "blocks"),
    [("resnet18", Basic, (2, 2, 2, 2)), ("resnet50", Bottleneck, (3, 4, 6, 3))],
)
@pytest.mark.parametrize("side", [32, 17])
def test_features_and_gradients_are_those_of_the_reference(
    stem: str, name: str, block: type[Basic | Bottleneck], blocks: tuple[int, ...], side: int,
    tmp_path: Path,
) -> None:  # fmt: skip
    reference = ResNet(block, blocks, stem).eval()
    backbone = ours(name, stem=stem)
    report = load_backbone(backbone, save_as(reference.state_dict(), tmp_path / "weights.pth"))
    assert (report.style, report.prefix) == ("torchvision", "")
    assert number_of(report) == (0, 0, 0, 2, 0)
    assert report.loaded == len(backbone.state_dict())
    images = torch.rand(2, 3, side, side, requires_grad=True)
    features = [network(images) for network in (reference, backbone.eval())]
    assert features[0].std() > 0.1
    torch.testing.assert_close(features[1], features[0], rtol=1e-5, atol=1e-5)
    expected, found = (torch.autograd.grad(f.square().sum(), images)[0] for f in features)
    scale = expected.abs().max()
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("file", ["weights.safetensors", "weights.pth"])
@pytest.mark.parametrize(
    ("tensors", "style", "prefix"),
    [
        (theirs(), "torchvision", ""),
        (theirs("module."), "torchvision", "module."),
        (theirs("module.encoder_q."), "torchvision", "module.encoder_q."),
        (theirs("backbone."), "torchvision", "backbone."),
        (theirs("a.b_c.d.e.f.g.h.0."), "torchvision", "a.b_c.d.e.f.g.h.0."),
        (theirs(shortcut="shortcut"), "pytorch-cifar", ""),
        (theirs("module.encoder.", shortcut="shortcut"), "pytorch-cifar", "module.encoder."),
        (number_names(), "sequential", "f."),
        (number_names(""), "sequential", ""),
        (number_names("module.f.", modules=("relu",)), "sequential", "module.f."),
        (number_names(modules=()), "sequential", "f."),
        (number_names(shortcut="shortcut", modules=()), "sequential", "f."),
    ],
)
def test_every_naming_gives_the_same_weights(
    tensors: Tensors, style: str, prefix: str, file: str, tmp_path: Path
) -> None:
    expected, backbone = ours(), ours(seed=1)
    load_backbone(expected, save_as(theirs(), tmp_path / "plain.pth"))
    assert not same(expected.state_dict(), backbone.state_dict())
    report = load_backbone(backbone, save_as(tensors, tmp_path / file))
    assert same(expected.state_dict(), backbone.state_dict())
    assert (report.style, report.prefix) == (style, prefix)
    assert number_of(report) == (0, 0, 0, 2, 0)


@pytest.mark.parametrize("first", [Basic, Bottleneck])
def test_an_imagenet_stem_is_found_in_a_sequential(first: type[Basic], tmp_path: Path) -> None:
    how: dict[str, Any] = {"block": first, "blocks": (1, 2, 1), "stem": "imagenet"}
    name = "resnet18" if first is Basic else "resnet50"
    expected, backbone = (ours(name, blocks=(1, 2, 1), stem="imagenet", seed=s) for s in (0, 1))
    load_backbone(expected, save_as(theirs(**how), tmp_path / "plain.pth"))
    load_backbone(backbone, save_as(number_names(**how), tmp_path / "numbered.pth"))
    assert same(expected.state_dict(), backbone.state_dict())


@pytest.mark.parametrize("name", BACKBONES)
def test_our_own_names_stay(name: str, tmp_path: Path) -> None:
    backbone, other = (ours(name, standardise=True, seed=seed) for seed in (0, 1))
    assert [OURS.translate(tensor) for tensor in backbone.state_dict()] == [*backbone.state_dict()]
    report = load_backbone(other, save_as(backbone.state_dict(), tmp_path / "weights.safetensors"))
    assert same(backbone.state_dict(), other.state_dict())
    assert (report.style, number_of(report)) == ("protofission", (0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3, "arch": "resnet18", "best": 0.5},
        lambda state: {"model": state, "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]}},
        lambda state: {"a": {"b": {"model_state_dict": state}}, "none": None, "list": [state]},
        lambda state: {"net": {**state, "epoch": 3, ("a", 1): torch.ones(1), "self": {}}},
    ],
)
def test_dictionaries_around_the_weights_are_opened(
    wrap: Callable[[Tensors], Any], tmp_path: Path
) -> None:
    backbone = ours()
    report = load_backbone(backbone, save_as(wrap(theirs("module.")), tmp_path / "wrapped.tar"))
    assert report.prefix.endswith("module.")
    assert number_of(report) == (0, 0, 0, 2, 0)
    assert torch.equal(backbone.state_dict()["stem.0.weight"], theirs()["conv1.weight"])


def test_a_dictionary_that_holds_itself_is_read(tmp_path: Path) -> None:
    state: dict[str, Any] = {"model": theirs()}
    state["state"] = state["model"]["self"] = state
    report = load_backbone(ours(), save_as(state, tmp_path / "loop.pth"))
    assert (report.prefix, number_of(report)) == ("model.", (0, 0, 0, 2, 0))
    deep: dict[str, Any] = theirs()
    for _ in range(50):
        deep = {"model": deep}
    assert "holds no tensor" in refusal(ours(), save_as(deep, tmp_path / "deep.pth"))


@pytest.mark.parametrize("file", ["moco.safetensors", "moco.pth"])
@pytest.mark.parametrize(
    ("taken", "copy"),
    [("encoder_q", "encoder_k"), ("student", "ema"), ("net", "momentum_net"), ("z", "a.teacher")],
)
def test_the_trained_encoder_is_taken_and_its_copy_left(
    taken: str, copy: str, file: str, tmp_path: Path
) -> None:
    state = theirs(f"{copy}.") | theirs(f"{taken}.") | {"queue": torch.rand(4, 16)}
    for name in list(state):
        if name.startswith(copy):
            state[name] = torch.zeros_like(state[name])
    backbone = ours()
    report = load_backbone(backbone, save_as(state, tmp_path / file))
    assert report.prefix == f"{taken}."
    copies = sorted(f"{copy}.{name}" for name in theirs())
    assert sorted(report.left_out) == sorted(
        [*copies, "queue", f"{taken}.fc.weight", f"{taken}.fc.bias"]
    )
    assert torch.equal(backbone.state_dict()["stem.0.weight"], theirs()["conv1.weight"])


def test_of_equals_the_shortest_prefix_is_taken(tmp_path: Path) -> None:
    source = save_as(theirs("a.b.") | theirs("z.") | theirs("x."), tmp_path / "x.pth")
    assert load_backbone(ours(), source).prefix == "x."


def test_of_two_networks_the_one_that_fits_is_taken(tmp_path: Path) -> None:
    narrow = {name: value[:1] if value.dim() else value for name, value in theirs("x.").items()}
    source = save_as(narrow | theirs("teacher."), tmp_path / "x.pth")
    assert load_backbone(ours(), source).prefix == "teacher."


def test_a_copy_is_taken_if_there_is_nothing_else(tmp_path: Path) -> None:
    assert load_backbone(ours(), save_as(theirs("ema."), tmp_path / "x.pth")).prefix == "ema."


def test_heads_are_left_out_and_nothing_else_is(tmp_path: Path) -> None:
    heads = ["linear.0.weight", "projector.layers.0.weight", "head.mlp.bias", "queue", "0.weight"]
    state = theirs() | {name: torch.ones(2) for name in heads}
    report = load_backbone(ours(), save_as(state, tmp_path / "heads.pth"))
    assert set(report.left_out) == {"fc.weight", "fc.bias", *heads}
    state = theirs("a.") | {"layer9.weight": torch.ones(2)}  # beside the backbone, not in it
    report = load_backbone(ours(), save_as(state, tmp_path / "beside.pth"))
    assert set(report.left_out) == {"a.fc.weight", "a.fc.bias", "layer9.weight"}
    for name in ("conv1.bias", "layer1.0.se.weight", "layer5.0.conv1.weight", "conv2.weight"):
        sentence = refusal(ours(), save_as(theirs() | {name: torch.ones(2)}, tmp_path / "more.pth"))
        assert f"1 unexpected ({name})" in sentence
        assert GENERAL in sentence


def test_a_sequential_s_head_is_left_out_and_its_blocks_are_not(tmp_path: Path) -> None:
    source = save_as(number_names() | {"f.10.0.weight": torch.ones(2, 2)}, tmp_path / "f.pth")
    assert compare(ours(), source).left_out == ("f.9.weight", "f.9.bias", "f.10.0.weight")
    bias = save_as(number_names() | {"f.0.bias": torch.ones(8)}, tmp_path / "bias.pth")
    assert compare(ours(), bias).unexpected == ("f.0.bias",)
    report = compare(ours(blocks=(2, 2, 2)), source)
    assert len(report.unexpected) == sum(name.startswith("f.7.") for name in number_names())
    assert report.left_out == ("f.9.weight", "f.9.bias", "f.10.0.weight")
    assert not report.missing
    assert not report.misshapen


def test_shapes_tell_where_a_sequential_s_stages_begin(tmp_path: Path) -> None:
    """The second and third of four stages have all the names of a first and second."""
    tensors = number_names(modules=("relu",))
    report = compare(ours(blocks=(2, 2)), save_as(tensors, tmp_path / "f.pth"))
    assert not report.missing
    assert not report.misshapen
    assert {name[:4] for name in report.unexpected} == {"f.5.", "f.6."}


def without(tensors: Tensors, *endings: str) -> Tensors:
    return {name: value for name, value in tensors.items() if not name.endswith(endings)}


def test_counters_and_our_statistics_may_be_missing(tmp_path: Path) -> None:
    backbone = ours(standardise=True)
    state = without(theirs(), ".num_batches_tracked")
    report = load_backbone(backbone, save_as(state, tmp_path / "old.pth"))
    names = [*backbone.state_dict()]
    counters = [name for name in names if name.endswith("num_batches_tracked")]
    statistics = ["standardise.running_mean", "standardise.running_var"]
    assert sorted(report.kept) == sorted([*counters, *statistics])
    assert report.loaded == len(names) - len(report.kept)
    for name in counters:
        assert backbone.state_dict()[name] == 0
    assert (backbone.state_dict()["standardise.running_mean"] == 0).all()
    assert (backbone.state_dict()["standardise.running_var"] == 1).all()
    assert torch.equal(backbone.state_dict()["stem.0.weight"], state["conv1.weight"])
    assert "  stem.1.num_batches_tracked, " in "\n".join(report.lines())


def test_half_of_our_statistics_is_damage(tmp_path: Path) -> None:
    backbone = ours(standardise=True)
    state = without(backbone.state_dict(), "standardise.running_mean")
    sentence = refusal(ours(standardise=True), save_as(state, tmp_path / "half.pth"))
    assert "1 missing (standardise.running_mean)" in sentence


def test_statistics_without_a_place_are_refused_with_their_remedy(tmp_path: Path) -> None:
    source = save_as(ours(standardise=True).state_dict(), tmp_path / "standardized.safetensors")
    sentence = refusal(ours(), source)
    assert "; set backbone.standardise=true (" in sentence
    assert "3 unexpected" in sentence


def packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a folder of weights."""
    (folder / "weights").mkdir(parents=True)
    monkeypatch.setattr(weight_files.resources, "files", lambda package: folder)
    return folder / "weights"


def test_all_sources_give_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = ours(standardise=True, seed=3)
    state = {
        name: value.half().float() if value.is_floating_point() else value + 70_000
        for name, value in trained.state_dict().items()
    }
    halves = {n: v.half() if v.is_floating_point() else v for n, v in state.items()}
    save_as(halves, packages(tmp_path / "package", monkeypatch) / "tiny-1.5.safetensors")
    save_as(state, tmp_path / "file.safetensors")
    save_as({"state_dict": state}, tmp_path / "file.pth")
    run = tmp_path / "run-seed0"
    run.mkdir()
    model = {f"backbone.{name}": value for name, value in state.items()}
    save_as(model | {"head.weight": torch.ones(3)}, run / "weights.safetensors")
    (run / "finished").touch()
    sources = ["tiny-1.5", *(str(tmp_path / n) for n in ("file.safetensors", "file.pth", run.name))]
    reports = []
    for source in sources:
        backbone = ours(standardise=True, seed=4)
        reports.append(load_backbone(backbone, source))
        assert same(backbone.state_dict(), state), source
    assert [report.prefix for report in reports] == ["", "", "state_dict.", "backbone."]
    assert reports[-1].left_out == ("head.weight",)


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    assert "is no run" in refusal(ours(), str(run))
    save_as(ours().state_dict(), run / "weights.safetensors")
    assert "is a run that did not finish" in refusal(ours(), str(run))
    (run / "finished").touch()
    load_backbone(ours(), str(run))
    (run / "weights.safetensors").write_bytes(b"")
    assert "run again" in refusal(ours(), str(run))
    (run / "weights.safetensors").unlink()
    assert "weights.safetensors cannot be read" in refusal(ours(), str(run))


def test_packaged_weights_are_listed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in packaged_weights().values():
        assert path.is_file()
    folder = packages(tmp_path, monkeypatch)
    assert packaged_weights() == {}
    for name in ("resnet18-digits.safetensors", "b.safetensors", "README.md"):
        (folder / name).touch()
    assert list(packaged_weights()) == ["b", "resnet18-digits"]
    sentence = refusal(ours(), "resnet18-digit")
    assert "Unknown weights 'resnet18-digit'. Did you mean 'resnet18-digits'?" in sentence
    assert "b.safetensors is damaged" in refusal(ours(), "b")


def test_a_name_without_any_packaged_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_files.resources, "files", lambda package: tmp_path / "nowhere")
    assert packaged_weights() == {}
    assert "no packaged weights 'tiny': give a checkpoint file" in refusal(ours(), "tiny")


@pytest.mark.parametrize(
    "source", ["nowhere.pth", "no/such/run", "./name", "a\0b/c", "~nobody/x", "x" * 5000 + ".pth"]
)
def test_a_missing_file_is_named(source: str) -> None:
    sentence = refusal(ours(), source)
    assert sentence.startswith(source.replace("\0", r"\x00"))
    assert "does not exist: give a checkpoint file or a finished run" in sentence


def test_what_is_no_file_is_not_read() -> None:
    assert refusal(ours(), "/dev/zero") == (
        "/dev/zero cannot be read (it is a device, not a plain file): give another file."
    )
    assert "backbone.weights is empty" in refusal(ours(), " ")


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_as(theirs(), tmp_path / "x.pth")
    load_backbone(ours(), "~/x.pth")


class Acts:
    """A pickle of this runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("legacy", [False, True])
def test_code_in_a_file_is_never_run(protocol: int, legacy: bool, tmp_path: Path) -> None:
    acts = Acts(f"touch {tmp_path / 'ran'}")
    (tmp_path / "pickle.pth").write_bytes(pickle.dumps(acts, protocol))
    for name, content in (("acts", theirs() | {"x": acts}), ("module", ResNet())):
        torch.save(
            content, tmp_path / f"{name}.pth", pickle_protocol=protocol,
            _use_new_zipfile_serialization=not legacy,
        )  # fmt: skip
    for name in ("pickle", "acts", "module"):
        sentence = refusal(ours(), str(tmp_path / f"{name}.pth"))
        assert "is not loaded, because it holds more than tensors and would run code" in sentence
        assert "save its state_dict alone" in sentence
    assert not (tmp_path / "ran").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_script_is_not_loaded(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(tmp_path / "script.pt"))
    assert "would run code" in refusal(ours(), str(tmp_path / "script.pt"))


def archive(tensors: Any, tmp_path: Path, *, legacy: bool = False) -> bytes:
    torch.save(tensors, tmp_path / "whole", _use_new_zipfile_serialization=not legacy)
    return (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_what_is_no_checkpoint_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    small = {"conv1.weight": torch.ones(100)}
    files = [
        b"", b"\x80", b"PK", b"<html>404</html>" * 9, b"config: 1\nlayers: 2\n.", bytes(range(256)),
        save(small)[:-1] if suffix == ".safetensors" else archive(small, tmp_path)[:-60],
        archive(small, tmp_path, legacy=True)[:-90], archive(small, tmp_path)[:300],
        pickle.dumps({"a": 1}, 2),
    ]  # fmt: skip
    for content in files:
        path.write_bytes(content)
        sentence = refusal(ours(), str(path))
        assert sentence.startswith(f"{path} is damaged or no "), content[:20]


@pytest.mark.parametrize(
    "content", [torch.ones(3), {}, [theirs()], {"epoch": 3}, {"a": {("b",): torch.ones(2)}}, 5]
)
def test_a_file_without_named_tensors_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.pth"
    assert f"{path} holds no tensor with a name" in refusal(ours(), save_as(content, path))


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    state = {"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}
    assert "x.pth holds two tensors a.b" in refusal(ours(), save_as(state, tmp_path / "x.pth"))


def outcome(backbone: Backbone, source: str) -> str | None:
    """The sentence of a refusal; None if the weights are loaded."""
    try:
        load_backbone(backbone, source)
    except InputError as error:
        return str(error)
    return None


@given(st.sampled_from(["x.pth", "legacy.pth", "x.safetensors"]), st.data())
def test_no_bytes_crash_the_reader(name: str, data: st.DataObject) -> None:
    """Flipped and cut files are refused or, where a number was flipped, loaded."""
    spec = BackboneSpec(width=1, blocks=(1,))
    state = spec.build(1, step_rng(0, 0, "backbone")).state_dict()
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        if path.suffix == ".safetensors":
            content = bytearray(save(state))
        else:
            content = bytearray(archive(state, path.parent, legacy=name == "legacy.pth"))
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.sampled_from([None, place]))])
        backbone = spec.build(1, step_rng(1, 0, "backbone"))
        untouched = watch(backbone)
        said = outcome(backbone, str(path))
        assert said is None or (said.isprintable() and untouched())


STRANGE: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": lambda value: value.flatten(1).to_sparse(),
    "compressed": lambda value: value.flatten(1).to_sparse_csr(),
    "quantized": lambda value: torch.quantize_per_tensor(value, 0.1, 0, torch.qint8),
    "nested": lambda value: torch.nested.nested_tensor([value[0], value[1]]),
    "meta": lambda value: value.to("meta"),
    "complex": lambda value: value.to(torch.complex64),
    "boolean": lambda value: value > 0,
    "float8": lambda value: value.to(torch.float8_e4m3fn),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_tensors_are_refused(kind: str, tmp_path: Path) -> None:
    state = theirs()
    state["layer1.0.conv1.weight"] = STRANGE[kind](state["layer1.0.conv1.weight"])
    sentence = refusal(ours(), save_as(state, tmp_path / "x.pth"))
    assert "holds layer1.0.conv1.weight as no plain tensor" in sentence
    state = theirs() | {"fc.weight": state["layer1.0.conv1.weight"]}
    assert "fc.weight" in load_backbone(ours(), save_as(state, tmp_path / "x.pth")).left_out


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16, torch.int32])
def test_numbers_are_cast(kind: torch.dtype, tmp_path: Path) -> None:
    state = {
        name: (3 * value).to(kind) if value.is_floating_point() else value.to(torch.int32)
        for name, value in theirs().items()
    }
    state["bn1.num_batches_tracked"] = torch.tensor(12.0)
    backbone = ours()
    load_backbone(backbone, save_as(state, tmp_path / "x.pth"))
    found = backbone.state_dict()
    assert torch.equal(found["stem.0.weight"], state["conv1.weight"].float())
    assert found["stem.1.num_batches_tracked"].dtype == torch.int64
    assert found["stem.1.num_batches_tracked"] == 12
    assert {value.dtype for value in found.values()} == {torch.float32, torch.int64}


def test_any_layout_in_memory_will_do(tmp_path: Path) -> None:
    state = theirs()
    state["conv1.weight"] = state["conv1.weight"].to(memory_format=torch.channels_last)
    state["layer1.0.conv1.weight"] = nn.Parameter(state["layer1.0.conv1.weight"].transpose(0, 1))
    state["bn1.weight"] = torch.ones(1).expand(WIDTH)
    backbone = ours().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    backbone.requires_grad_(False)
    load_backbone(backbone, save_as(state, tmp_path / "x.pth"))
    found = backbone.state_dict()
    for name, other in (
        ("stem.0.weight", "conv1.weight"),
        ("stages.0.0.conv1.weight", "layer1.0.conv1.weight"),
        ("stem.1.weight", "bn1.weight"),
    ):
        assert torch.equal(found[name], state[other])
    assert found["stem.0.weight"].is_contiguous(memory_format=torch.channels_last)
    assert not any(weight.requires_grad for weight in backbone.parameters())
    assert found["stem.1.weight"].untyped_storage().nbytes() == 4 * WIDTH


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("layer4.1.conv2.weight", float("nan")),
        ("bn1.running_mean", float("-inf")),
        ("layer2.0.downsample.1.running_var", -1e-3),
        ("bn1.weight", 1e300),
        ("bn1.num_batches_tracked", float("nan")),
    ],
)
def test_impossible_numbers_are_refused(name: str, value: float, tmp_path: Path) -> None:
    state = theirs()
    state[name] = state[name].double()
    state[name].view(-1)[-1] = value
    sentence = refusal(ours(), save_as(state, tmp_path / "x.pth"))
    assert f"x.pth holds NaN, infinite numbers or negative variances in {name}:" in sentence
    state = theirs() | {"fc.weight": torch.tensor([float("nan")])}
    load_backbone(ours(), save_as(state, tmp_path / "x.pth"))


@pytest.mark.parametrize(
    ("build", "tensors", "words"),
    [
        (
            lambda: ours(stem="imagenet"), theirs(),
            "1 misshapen (conv1.weight is 8 x 3 x 3 x 3, not 8 x 3 x 7 x 7)",
        ),
        (
            lambda: ours(), theirs(blocks=(2, 2, 2, 1)),
            "1.conv1.weight, layer4.1.bn1.weight, layer4.1.bn1.bias and 7 more)",
        ),
        (lambda: ours(blocks=(2, 2, 2, 1)), theirs(), "12 unexpected (layer4.1.conv1.weight, "),
        (lambda: ours("resnet50"), theirs(), " missing (layer1.0.conv3.weight, "),
        (lambda: ours(shortcut="mean"), theirs(), "unexpected (layer2.0.downsample.1.weight, "),
        (
            lambda: ours(), {n: v[: len(v) // 2] if v.dim() else v for n, v in theirs().items()},
            "misshapen (conv1.weight is 4 x 3 x 3 x 3, not 8 x 3 x 3 x 3, bn1.weight is 4, not 8",
        ),
        (lambda: ours("digits"), theirs(), "backbone.stem"),
        (
            lambda: ours(), theirs(channels=1) | {"bn1.weight": torch.ones(9)},
            "2 misshapen (conv1.weight is 8 x 1 x 3 x 3, not 8 x 3 x 3 x 3, bn1.weight is 9",
        ),
        (lambda: ours(blocks=(2, 2, 2)), theirs(), "unexpected (layer4.0.conv1.weight, "),
        (lambda: ours(), theirs(blocks=(2, 2, 2)), "missing (layer4.0.conv1.weight, "),
        (
            lambda: ours(), theirs() | {"bn1.num_batches_tracked": torch.ones(1)},
            "1 misshapen (bn1.num_batches_tracked is 1, not one number)",
        ),
    ],
)  # fmt: skip
def test_another_network_is_refused_with_counts_names_and_remedy(
    build: Callable[[], Backbone], tensors: Tensors, words: str, tmp_path: Path
) -> None:
    sentence = refusal(build(), save_as(tensors, tmp_path / "x.pth"))
    assert words in sentence
    assert f"{tmp_path / 'x.pth'} does not fit the backbone: " in sentence
    assert GENERAL in sentence
    assert_adds_up(compare(build(), str(tmp_path / "x.pth")), build(), tensors)


def assert_adds_up(report: LoadReport, backbone: Backbone, tensors: Tensors) -> None:
    """Every tensor of either side is in the report once, and named in it."""
    missing, unexpected, misshapen, left_out, kept = number_of(report)
    assert report.loaded + missing + misshapen + kept == len(backbone.state_dict())
    assert report.loaded + unexpected + misshapen + left_out == len(tensors)
    lines = report.lines()
    assert max(map(len, lines)) <= 80
    words = {word.rstrip(",") for line in lines for word in line.split()}
    shapes = [tensor.name for tensor in report.misshapen]
    assert {*report.missing, *report.unexpected, *report.left_out, *report.kept, *shapes} <= words


@pytest.mark.parametrize("name", ["resnet18", "digits"])
def test_images_of_other_channels_are_named(name: str, tmp_path: Path) -> None:
    source = save_as(ours(name, channels=1).state_dict(), tmp_path / "gray.safetensors")
    sentence = refusal(ours(name), source)
    assert " is 8 x 1 x 3 x 3, not 8 x 3 x 3 x 3" in sentence
    assert "it takes 1-channel images and these have 3, take other weights" in sentence


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    transformer = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 12, enable_nested_tensor=False
    )
    layers = (layer for _ in range(8) for layer in (nn.Conv2d(8, 8, 3), nn.ReLU()))
    features = nn.ModuleDict({"features": nn.Sequential(*layers), "classifier": nn.Linear(2, 2)})
    for network in (transformer, features, nn.Linear(2, 2)):
        sentence = refusal(ours(), save_as(network.state_dict(), tmp_path / "x.pth"))
        assert f"x.pth holds no backbone of this kind, its {len(network.state_dict())} tensors" in (
            sentence
        )
        assert "take weights of a ResNet, or another backbone=" in sentence


def test_a_wide_resnet_takes_only_our_names(tmp_path: Path) -> None:
    """Others' of one naming differ in what their shortcuts see, which no tensor tells."""
    state = ours("wrn-28-2").state_dict()
    renamed = {
        name.replace("stages.", "layer").replace("norm", "bn"): state[name] for name in state
    }
    assert "no backbone of this kind" in refusal(
        ours("wrn-28-2"), save_as(renamed, tmp_path / "x.pth")
    )


def test_names_from_a_file_cannot_break_the_report(tmp_path: Path) -> None:
    names = ["fc.\n\x1b[31m", "fc." + "x" * 1000, "head.\udcff", "q, r  s"]
    state = theirs() | {name: torch.ones(1) for name in names}
    report = load_backbone(ours(), save_as(state, tmp_path / "x.pth"))
    lines = report.lines()
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert r"fc.\n\x1b[31m" in "".join(lines)
    state = theirs() | {f"layer1.{name}": torch.ones(1) for name in names}
    sentence = refusal(ours(), save_as(state, tmp_path / "x.pth"))
    assert r"4 unexpected (layer1.fc.\n\x1b[31m, layer1.fc.xxx" in sentence
    assert len(sentence) < 800


def test_the_report_reads_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = without(theirs("module."), "num_batches_tracked", "layer4.1.bn2.bias")
    report = compare(ours(stem="imagenet", blocks=(2, 2, 2, 2)), save_as(state, Path("x.pth")))
    lines = report.lines()
    assert lines[:9] == [
        'x.pth: names of torchvision after "module."',
        "loaded: 98",
        "missing: 1",
        "  module.layer4.1.bn2.bias",
        "unexpected: none",
        "misshapen: 1",
        "  module.conv1.weight is 8 x 3 x 3 x 3, not 8 x 3 x 7 x 7",
        "left out: 2",
        "  module.fc.weight, module.fc.bias",
    ]
    assert lines[9] == "kept: 20"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

"""Backbones against slow twins, and stages that learn or stay exactly as asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from builders import normal, rng
from protofission.core.errors import InputError
from protofission.models.backbones import (
    BACKBONES,
    Backbone,
    BackboneSpec,
    find_backbone,
)
from protofission.models.residual_blocks import EveryOther

NARROW = {
    name: replace(spec, width=4, blocks=tuple(min(n, 2) for n in spec.blocks))
    for name, spec in BACKBONES.items()
}
CASES = [(name, k) for name, spec in NARROW.items() for k in (None, *range(spec.stages + 1))]


def images(number: int = 6, channels: int = 3, height: int = 16, width: int = 16) -> Tensor:
    return torch.rand(number, channels, height, width, generator=rng(9))


def build_shaken(spec: BackboneSpec, channels: int = 3) -> Backbone:
    """A backbone in float64 away from its start: no batch norm with the factor 1 or the mean 0."""
    backbone = spec.build(channels, rng(1)).double()
    with torch.no_grad():
        for number, (name, value) in enumerate(backbone.state_dict().items()):
            if value.ndim == 1 and value.is_floating_point():
                noise = normal(*value.shape, seed=number)
                value.add_(noise.abs() if name.endswith("var") else 0.5 * noise)
    return backbone


# The size of the known nets


@pytest.mark.parametrize(
    ("name", "stem", "parameters"),
    [
        ("resnet18", "cifar", 11_168_832),
        ("resnet50", "cifar", 23_500_352),
        ("resnet50", "imagenet", 23_508_032),
        ("wrn-28-2", "cifar", 1_466_320),
    ],
)
def test_known_nets_have_their_known_number_of_parameters(name, stem, parameters):
    spec = replace(find_backbone(name), stem=stem)
    backbone = spec.build(3, rng(0))
    assert sum(p.numel() for p in backbone.parameters()) == parameters
    features = {"resnet18": 512, "resnet50": 2048, "wrn-28-2": 128}[name]
    assert spec.num_features == backbone.num_features == features


# Slow twins


def convolve(maps: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    return F.conv2d(maps, weight, stride=stride, padding=weight.shape[-1] // 2)


def normalize(maps: Tensor, state: dict[str, Tensor], name: str, training: bool) -> Tensor:
    """Batch norm by its formula, over all dimensions but the second."""
    others = [d for d in range(maps.ndim) if d != 1]
    mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    if training:
        mean = maps.mean(others)
        variance = maps.square().mean(others) - mean.square()
    factor = state.get(f"{name}.weight", torch.ones_like(mean))
    constant = state.get(f"{name}.bias", torch.zeros_like(mean))
    shape = (1, -1, *[1] * (maps.ndim - 2))
    mean, deviation = mean.view(shape), (variance + 1e-5).sqrt().view(shape)
    return (maps - mean) / deviation * factor.view(shape) + constant.view(shape)


def leaky(maps: Tensor) -> Tensor:
    return maps.clamp_min(0) + 0.1 * maps.clamp_max(0)


def halve_by_mean(maps: Tensor) -> Tensor:
    """Means over 2 x 2, at the edge over what is there."""
    height, width = maps.shape[2:]
    rows = [
        torch.stack(
            [maps[:, :, y : y + 2, x : x + 2].mean((2, 3)) for x in range(0, width, 2)], dim=-1
        )
        for y in range(0, height, 2)
    ]
    return torch.stack(rows, dim=-2)


class Twin:
    """The forward pass of a backbone, from its specification and its weights by name."""

    def __init__(self, spec: BackboneSpec, backbone: Backbone, training: bool) -> None:
        self.spec, self.state, self.training = spec, backbone.state_dict(), training

    def norm(self, maps: Tensor, name: str) -> Tensor:
        return normalize(maps, self.state, name, self.training)

    def shortcut(self, maps: Tensor, name: str, stride: int) -> Tensor:
        weight = self.state.get(f"{name}.shortcut.1.weight")
        if weight is None:
            return maps
        if self.spec.shortcut == "mean":
            return convolve(halve_by_mean(maps) if stride == 2 else maps, weight)
        strided = convolve(maps, weight, stride)
        if self.spec.block == "preactivated":
            return strided
        return self.norm(strided, f"{name}.shortcut.2")

    def block(self, maps: Tensor, name: str, stride: int) -> Tensor:
        conv = {k: self.state.get(f"{name}.conv{k}.weight") for k in (1, 2, 3)}
        match self.spec.block:
            case "basic":
                hidden = self.norm(convolve(maps, conv[1], stride), f"{name}.norm1").relu()
                hidden = self.norm(convolve(hidden, conv[2]), f"{name}.norm2")
                return (hidden + self.shortcut(maps, name, stride)).relu()
            case "bottleneck":
                hidden = self.norm(convolve(maps, conv[1]), f"{name}.norm1").relu()
                hidden = self.norm(convolve(hidden, conv[2], stride), f"{name}.norm2").relu()
                hidden = self.norm(convolve(hidden, conv[3]), f"{name}.norm3")
                return (hidden + self.shortcut(maps, name, stride)).relu()
            case "preactivated":
                active = leaky(self.norm(maps, f"{name}.norm1"))
                hidden = leaky(self.norm(convolve(active, conv[1], stride), f"{name}.norm2"))
                projected = f"{name}.shortcut.1.weight" in self.state
                kept = self.shortcut(active, name, stride) if projected else maps
                return convolve(hidden, conv[2]) + kept

    def stem(self, maps: Tensor) -> Tensor:
        if self.spec.stem == "none":
            return maps
        stride = 1 if self.spec.stem == "cifar" else 2
        maps = convolve(maps, self.state["stem.0.weight"], stride)
        if self.spec.block != "preactivated":
            maps = self.norm(maps, "stem.1").relu()
        if self.spec.stem == "imagenet":
            padded = F.pad(maps, (1, 1, 1, 1), value=-torch.inf)
            maps = padded.unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))
        return maps

    def features(self, inputs: Tensor) -> Tensor:
        maps = self.stem(inputs)
        for stage, blocks in enumerate(self.spec.blocks):
            for place in range(blocks):
                stride = 2 if stage > 0 and place == 0 else 1
                maps = self.block(maps, f"stages.{stage}.{place}", stride)
        if self.spec.block == "preactivated":
            maps = leaky(self.norm(maps, "last.0"))
        found = maps.sum((2, 3)) / (maps.shape[2] * maps.shape[3])
        return self.norm(found, "standardise") if self.spec.standardise else found


TWINS = {
    f"{block}, {stem}, {shortcut}": BackboneSpec(block, 4, (2, 1, 2), stem, shortcut)
    for block in ("basic", "bottleneck", "preactivated")
    for stem, shortcut in (
        ("none", "mean"),
        ("cifar", "stride"),
        ("half", "mean"),
        ("imagenet", "stride"),
    )
}
TWINS["without standardization"] = BackboneSpec("basic", 4, (1, 1), standardise=False)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", TWINS)
def test_features_equal_those_of_the_slow_twin(name, training):
    spec = TWINS[name]
    backbone = build_shaken(spec).train(training)
    inputs = images(5, 3, 13, 22).double()  # odd sides: halving rounds up
    twin = Twin(spec, backbone, training)
    expected = twin.features(inputs)
    kept = inputs.clone()
    assert_close(backbone(inputs), expected)
    assert torch.equal(inputs, kept)


@pytest.mark.parametrize("size", [(8, 8), (7, 5), (1, 1), (2, 9)])
def test_every_other_pixel_before_a_1_x_1_convolution_is_that_convolution_with_a_stride(size):
    maps, weight = normal(3, 5, *size), normal(4, 5, 1, 1, seed=1)
    for laid_out in (maps, maps.contiguous(memory_format=torch.channels_last)):
        ours = laid_out.clone().requires_grad_()
        theirs = maps.clone().requires_grad_()
        every_other = F.conv2d(EveryOther()(ours), weight)
        strided = F.conv2d(theirs, weight, stride=2)
        assert_close(every_other, strided)
        (every_other.sin().sum() + strided.sin().sum()).backward()
        assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    ("pixels", "mean", "deviation"),
    [
        ("unit", [0.0] * 3, [1.0] * 3),
        ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
        ("cifar100", [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]),
        ("imagenet", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ],
)
def test_pixels_are_standardized_channel_by_channel(pixels, mean, deviation):
    spec = replace(NARROW["compact"], pixels=pixels)
    inputs = images()
    channels = [(inputs[:, c] - mean[c]) / deviation[c] for c in range(3)]
    expected = replace(spec, pixels="unit").build(3, rng(0)).eval()(torch.stack(channels, 1))
    backbone = spec.build(3, rng(0)).eval()
    assert_close(backbone(inputs), expected)
    assert not {"mean", "deviation"} & backbone.state_dict().keys()  # they are no weights


# What the options do


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("size", [(8, 8), (28, 28), (33, 47)])
@pytest.mark.parametrize("channels", [1, 3])
def test_features_are_a_row_an_image_whatever_the_size(name, size, channels):
    spec = NARROW[name]
    found = spec.build(channels, rng(0)).eval()(images(2, channels, *size))
    assert found.shape == (2, spec.num_features)
    assert found.isfinite().all()


STEMS = {"none": 1, "cifar": 1, "half": 2, "imagenet": 4}


@pytest.mark.parametrize("block", ["basic", "bottleneck", "preactivated"])
@pytest.mark.parametrize("stem", STEMS)
def test_width_depth_and_stem_give_each_stage_its_maps_and_blocks(block, stem):
    spec = BackboneSpec(block, 3, (2, 1, 3), stem)
    backbone = spec.build(3, rng(0))
    shapes = []
    for stage in backbone.stages:
        stage.register_forward_hook(lambda stage, _, maps: shapes.append(tuple(maps.shape[1:])))
    backbone(images(2, 3, 32, 64))
    expansion = 4 if block == "bottleneck" else 1
    height, width = 32 // STEMS[stem], 64 // STEMS[stem]
    assert shapes == [
        (3 * expansion, height, width),
        (6 * expansion, height // 2, width // 2),
        (12 * expansion, height // 4, width // 4),
    ]
    assert [len(stage) for stage in backbone.stages] == [2, 1, 3]
    assert spec.stages == 3
    assert spec.widths == (3, 6, 12)
    assert spec.num_features == backbone.num_features == 12 * expansion
    first = 16 if block == "preactivated" else 3
    side = {"none": None, "cifar": 3, "half": 3, "imagenet": 7}[stem]
    convolutions = [m.weight.shape for m in backbone.stem if isinstance(m, nn.Conv2d)]
    assert convolutions == ([] if side is None else [(first, 3, side, side)])


def test_standardized_features_have_mean_0_and_deviation_1_in_training():
    for standardise in (True, False):
        spec = replace(NARROW["resnet18"], standardise=standardise)
        found = spec.build(3, rng(0))(images(32, 3, 8, 8))
        centered = found.mean(0).abs().max() < 1e-5
        even = (found.var(0, unbiased=False) - 1).abs().max() < 1e-2
        assert (bool(centered), bool(even)) == (standardise, standardise)
    found = NARROW["digits"].build(3, rng(0)).named_parameters()
    assert not [name for name, _ in found if name.startswith("standardise")]  # nothing undoes it


# The random start


def test_a_random_start_is_a_function_of_the_generator_and_leaves_torch_s_own_alone():
    for name, spec in NARROW.items():
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = spec.build(3, rng(5)).state_dict()
        assert torch.equal(torch.get_rng_state(), before), name
        torch.manual_seed(2)
        second, other = spec.build(3, rng(5)).state_dict(), spec.build(3, rng(6)).state_dict()
        for key, value in first.items():
            assert torch.equal(value, second[key]), key
            assert torch.equal(value, other[key]) == (value.ndim < 4), key


def test_convolutions_start_as_wide_as_he_et_al_want():
    for spec in (BackboneSpec(width=32), BackboneSpec("preactivated", 32, stem="cifar")):
        for module in spec.build(3, rng(0)).modules():
            if isinstance(module, nn.Conv2d) and module.weight.numel() > 4000:
                inputs = module.in_channels * module.kernel_size[0] ** 2
                assert module.weight.std().item() == pytest.approx((2 / inputs) ** 0.5, rel=0.05)


# Freezing


def learning(name: str, spec: BackboneSpec, stages: int | None) -> bool:
    """Whether the owner of a parameter or statistic learns when the last stages do."""
    if stages is None or stages == spec.stages:
        return True
    part, _, rest = name.partition(".")
    match part:
        case "stem":
            return False
        case "stages":
            return int(rest.partition(".")[0]) >= spec.stages - stages
        case "last" | "standardise":
            return stages > 0
    raise AssertionError(name)


@pytest.mark.parametrize("statistics", ["frozen", "orca"])
@pytest.mark.parametrize(("name", "stages"), CASES)
def test_exactly_the_last_stages_learn_and_the_rest_stays_bit_identical(name, stages, statistics):
    spec = NARROW[name]
    backbone = spec.build(3, rng(0))
    backbone.learn_last(stages, statistics)
    outer = nn.Sequential(backbone).train()  # as a part of a model
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    parameters = dict(backbone.named_parameters())
    weight = normal(spec.num_features, 3, dtype=torch.float32).requires_grad_()
    optimizer = torch.optim.SGD([weight, *parameters.values()], lr=0.1, weight_decay=0.1)
    (outer(images()) @ weight).sin().sum().backward()
    optimizer.step()
    for key, parameter in parameters.items():
        learns = learning(key, spec, stages)
        assert parameter.requires_grad == learns, key
        assert (parameter.grad is not None) == learns, key
        assert not learns or parameter.grad.any(), key
        assert torch.equal(parameter, before[key]) != learns, key
    statistic_names = backbone.state_dict().keys() - parameters.keys()
    assert statistic_names
    for key in statistic_names:
        moves = statistics == "orca" or learning(key, spec, stages)
        assert torch.equal(backbone.state_dict()[key], before[key]) != moves, key


@pytest.mark.parametrize("stages", [None, 0, 1])
@pytest.mark.parametrize("statistics", ["frozen", "orca"])
def test_in_evaluation_no_statistic_moves(stages, statistics):
    backbone = NARROW["wrn-28-2"].build(3, rng(0))
    backbone.learn_last(stages, statistics)
    backbone.train().eval()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    backbone(images())
    assert all(torch.equal(before[key], v) for key, v in backbone.state_dict().items())


def test_what_was_frozen_learns_again_when_asked():
    backbone = NARROW["resnet18"].build(3, rng(0))
    backbone.learn_last(0)
    backbone.learn_last(None)
    backbone.train()
    assert all(parameter.requires_grad for parameter in backbone.parameters())
    assert all(module.training for module in backbone.modules())
    backbone(images()).sin().sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


@pytest.mark.parametrize("statistics", ["frozen", "orca"])
@pytest.mark.parametrize("name", NARROW)
def test_the_frozen_part_builds_no_graph(name, statistics):
    spec = NARROW[name]
    backbone = spec.build(3, rng(0))
    inputs = images().requires_grad_()
    kept: list[int] = []
    for stages in range(spec.stages + 1):
        backbone.learn_last(stages, statistics)
        backbone.train()
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(counting(kept), lambda saved: saved):
            features = backbone(inputs)
        assert features.requires_grad == (stages > 0)
        if stages:
            features.sum().backward()
        assert (inputs.grad is not None) == (stages == spec.stages)
    assert kept[0] == 0
    assert all(fewer < more for fewer, more in pairwise(kept))


def counting(kept: list[int]) -> Callable[[Tensor], Tensor]:
    """A hook that adds the elements that a graph keeps to the last number."""

    def pack(saved: Tensor) -> Tensor:
        kept[-1] += saved.numel()
        return saved

    return pack


def test_the_frozen_part_sees_its_batch_only_with_orca_s_statistics():
    """With frozen statistics, the features of an image do not depend on the others."""
    for statistics, alone in (("frozen", True), ("orca", False)):
        backbone = NARROW["resnet18"].build(3, rng(0))
        backbone.learn_last(0, statistics)
        backbone.train()
        whole = backbone(images())
        assert torch.allclose(whole[:3], backbone(images()[:3]), atol=1e-6) == alone


# Refusals


REFUSALS: list[tuple[dict[str, object], str]] = [
    ({"width": 0}, r"^width = 0 must be at least 1\.$"),
    ({"width": -4}, r"^width = -4 must be at least 1\.$"),
    ({"width": 2049}, "width = 2049 doubled over 3 stages gives more than 8192 features"),
    ({"width": 1, "blocks": (1,) * 15}, "doubled over 15 stages gives more than 8192"),
    ({"width": 513, "block": "bottleneck"}, "more than 8192 features: lower one of them"),
    ({"blocks": ()}, r"^stages = 0 must be at least 1\.$"),
    ({"blocks": (1, 0, 1)}, r"^blocks of stage 2 = 0 must be at least 1\.$"),
    ({"blocks": (1, 999, 1)}, "blocks = 1001 in all are more than 1000: lower them"),
    ({"block": "botleneck"}, "Unknown block 'botleneck'. Did you mean 'bottleneck'"),
    ({"stem": "cifra"}, r"Unknown stem 'cifra'. Did you mean 'cifar'\? Known: cifar, half"),
    ({"shortcut": "mena"}, "Unknown shortcut 'mena'. Did you mean 'mean'"),
    ({"pixels": "cifar"}, "Unknown pixels 'cifar'. Did you mean 'cifar10'"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSALS)
def test_a_backbone_that_cannot_be_is_refused_by_name(options, sentence):
    with pytest.raises(InputError, match=sentence):
        BackboneSpec(**options)


def test_the_largest_backbones_are_allowed():
    assert BackboneSpec(width=2048).num_features == 8192
    assert BackboneSpec("bottleneck", 512).num_features == 8192
    assert sum(BackboneSpec(blocks=(1, 998, 1)).blocks) == 1000


def test_an_unknown_backbone_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"Unknown backbone 'resnet-18'. Did you mean 'resnet18'"):
        find_backbone("resnet-18")
    assert all(find_backbone(name) is spec for name, spec in BACKBONES.items())

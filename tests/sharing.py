"""Some steps of every method, by as many processes as are asked for; run as a script.

Batch norm stays in evaluation mode: it alone would see which images a process has.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from protofission.methods import METHODS
from protofission.system.distributed import ALONE, Processes, launch_processes
from protofission.training.evaluate import predict
from protofission.training.loop import train
from protofission.training.state import start
from runs import digits, small

SHARED = [name for name, method in METHODS.items() if not method.traits.inner_step]
"""The methods that processes can share: those without an inner step (test_inner_step.py)."""
RECIPE = (
    "recipe.trainable_stages=none",
    "recipe.epochs=1",
    "recipe.clip=1",
    "recipe.ema=0.9",
    "backbone.stem=cifar",
)


def outcome(name: str, processes: Processes = ALONE) -> dict[str, Tensor]:
    """Losses, gradients of the last step, weights, and predictions with their metrics."""
    # Adam makes whole steps of gradients that are 0 but for rounding: one step tells all there.
    steps = 3 if METHODS[name].traits.memory_optimizer is None else 1
    data, experiment = digits(), small(name, *RECIPE, f"recipe.steps_per_epoch={steps}")
    state = start(experiment, data.training, data.augmentations, processes)
    for module in state.model.backbone.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.eval()
            module.train = lambda mode=True, module=module: module  # type: ignore[method-assign]
    found: dict[str, Tensor] = {}
    for report in train(state, experiment, data.training, data.augmentations, processes):
        for term in report.terms:
            found[f"{name}/loss/{report.step}/{term.name}"] = term.value
    for key, parameter in state.model.named_parameters():
        assert parameter.grad is not None
        found[f"{name}/gradient/{key}"] = parameter.grad
        found[f"{name}/weight/{key}"] = parameter.detach()
    if experiment.method.traits.classifies:
        predictions = predict(
            *state.judged,
            experiment,
            data.training,
            data.test,
            processes=processes,
        )
        found[f"{name}/scores"] = torch.from_numpy(predictions.ood_scores)
        found[f"{name}/confusion"] = torch.from_numpy(predictions.confusion)
    return {key: value.clone().contiguous() for key, value in found.items()}


def main(out: Path, processes: int, nodes: int, names: list[str]) -> None:
    together = launch_processes(processes, nodes, "cpu")
    found: dict[str, Tensor] = {}
    for name in names:
        found |= outcome(name, together)
    if together.first:
        assert together.share.size == 2
        save_file(found, out)
    together.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])

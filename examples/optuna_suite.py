"""Search options with optuna: each trial is a row of a suite, and every run of it a folder.

python examples/optuna_suite.py FOLDER [TRIALS]        (pip install optuna)

A trial that is asked for again finds its runs finished; a search that was killed goes on, since
the study is in FOLDER/study.db. The score is the accuracy on test images of seeds 0 and 1, so the
best one is too good: report the chosen options with other seeds, as the last lines do.
"""

import argparse
from pathlib import Path

import optuna

from protofission.experiments.suite import Case, Suite
from protofission.training.run import perform

SHORT = ("recipe.epochs=3", "backbone.width=8")


def accuracy(folder: Path, options: tuple[str, ...], seeds: range) -> float:
    """The mean strict accuracy over seeds of FixMatch-Sigmoid with fission on the digits."""
    case = Case("trial", "digits", "fixmatch-sigmoid+pf", "digits", (*SHORT, *options))
    runs = Suite("search", "A search", (case,), ("all_strict",)).runs(folder / "runs", seeds)
    for run in runs:
        if not run.folder.finished:
            experiment = case.experiment(run.seed)
            command = case.command(run.seed)
            data = experiment.data.load()
            for _ in perform(experiment, data, run.folder, resume=True, command=command):
                pass
    return sum(run.folder.metrics().strict.all for run in runs) / len(runs)


def options_of(trial: optuna.trial.BaseTrial) -> tuple[str, ...]:
    """The options of a trial, as `--set` takes them."""
    return (
        f"head.prototypes={trial.suggest_int('prototypes', 1, 5)}",
        f"method.diversity_weight={trial.suggest_float('diversity', 1e-3, 1.0, log=True):.3g}",
        f"recipe.learning_rate={trial.suggest_float('rate', 0.01, 0.2, log=True):.3g}",
    )


def main(folder: Path, trials: int) -> optuna.Study:
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="search",
        storage=f"sqlite:///{folder / 'study.db'}",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0),
        load_if_exists=True,
    )
    missing = trials - len([t for t in study.trials if t.state.is_finished()])
    study.optimize(lambda t: accuracy(folder, options_of(t), range(2)), n_trials=max(0, missing))
    best = options_of(optuna.trial.FixedTrial(study.best_params))
    print(f"best of {len(study.trials)} trials: {study.best_value:.3f} by {' '.join(best)}")
    print(f"with other seeds: {accuracy(folder, best, range(10, 12)):.3f}")
    return study


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("trials", type=int, nargs="?", default=20)
    main(**vars(parser.parse_args()))

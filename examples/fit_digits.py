"""Two folders made from scikit-learn's digits, a model of them, and what it says of new images.

python examples/fit_digits.py FOLDER
"""

import sys
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

import protofission


def write_folders(root: Path, known: int = 5, labels: int = 40, pool: int = 600) -> None:
    """`labeled/DIGIT/` for the known digits; `pool/` and `new/` with all ten, unsorted."""
    digits = load_digits()
    left = [labels] * known + [0] * (10 - known)
    for place, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        if left[digit]:
            left[digit] -= 1
            folder = root / "labeled" / str(digit)
        else:
            folder = root / ("pool" if place < pool + labels * known else "new")
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray((255 - pixels * 15.9).astype("uint8"))
        image.resize((64, 64)).save(folder / f"{place:04d}-{digit}.png")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    write_folders(root)
    model = protofission.fit(root / "labeled", root / "pool", root / "model", quality="fast")
    print(*model.card_lines(), sep="\n")
    print(protofission.predict(root / "model", [root / "new"], root / "new.csv").sentence())

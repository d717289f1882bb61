"""Prototype fission in a training loop of your own: the head and one loss, in plain PyTorch.

Even digits are one class, odd digits the other; the ten prototypes are told no more than that.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from protofission import FissionHead, fission_loss


def main(epochs: int = 20) -> tuple[float, float]:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    x, digits = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digits)
    labels = digits % 2

    body = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))
    head = FissionHead(num_features=32, num_classes=2, prototypes=5)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.003)

    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(256):
            y = labels[rows]
            output = head(body(x[rows]))
            loss = fission_loss(
                lambda logits, y=y: F.cross_entropy(logits, y), output, y, diversity_weight=1.0
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    with torch.no_grad():
        output = head(body(x))
    predicted = output.logits.argmax(1)
    slot = output.similarities[torch.arange(len(x)), predicted].argmax(1)
    accuracy = (predicted == labels).float().mean().item()
    subclass = predicted * 5 + slot  # which of the ten prototypes claims an image
    purity = sum(int((digits[subclass == p]).bincount().max()) for p in subclass.unique()) / len(x)
    print(f"class accuracy {accuracy:.3f}, purity of the sub-classes {purity:.3f} (chance 0.2)")
    return accuracy, purity


if __name__ == "__main__":
    main()

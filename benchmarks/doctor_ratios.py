"""Ratios by which `protofission doctor` says what a rate should be.

    python benchmarks/doctor_ratios.py --times 9

Prints the median, least and largest of so many measurements of each, on one thread.
"""

import argparse
import statistics

from protofission.core.threads import one_thread
from protofission.triage.doctor import (
    DECODED_PER_HASHED,
    ENCODED_PER_GFLOP,
    decode_rate,
    encode_rate,
    hash_rate,
    product_rate,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=9)
    times = parser.parse_args().times
    found: dict[str, list[float]] = {"DECODED_PER_HASHED": [], "ENCODED_PER_GFLOP": []}
    for _ in range(times):
        found["DECODED_PER_HASHED"].append(decode_rate() / hash_rate())
        with one_thread():
            products = product_rate()
        encoded = encode_rate()
        if encoded is not None:
            found["ENCODED_PER_GFLOP"].append(encoded / products)
    used = {"DECODED_PER_HASHED": DECODED_PER_HASHED, "ENCODED_PER_GFLOP": ENCODED_PER_GFLOP}
    for name, values in found.items():
        if values:
            middle, least, most = statistics.median(values), min(values), max(values)
            spread = f"{least:.2f} to {most:.2f}, n = {len(values)}"
            print(f"{name}: {middle:.2f} ({spread}); the doctor uses {used[name]}")


if __name__ == "__main__":
    main()

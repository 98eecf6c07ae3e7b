"""Do images on disk keep the device busy? Reading, a training step, and both together.

    python benchmarks/image_stream.py                        # DenseNet121, on a GPU where there is one
    python benchmarks/image_stream.py --network resnet18 --size 64 --images 400 --steps 5

JPEG files as large as those of CheXpert-small (390 x 320, gray) are written to a temporary folder. A step is
that of cross-entropy on 32 of them. If training from files is as fast as on a batch that is there already,
the device never waits; where it is not, the rate of reading says how many cores are short.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from _timing import machine, print_json, print_table
from mmb import auc
from mmb.data.image_files import Decoder, ImageFiles
from mmb.data.images import IMAGENET_MEAN, IMAGENET_STD, Pixels
from mmb.models.registry import build

BATCH, TASKS = 32, 13


def write_images(folder: Path, count: int, generator: torch.Generator) -> list[str]:
    """Smooth random gray images with some noise, about 20 kB each, as X-rays are."""
    names = [f"{number:05d}.jpg" for number in range(count)]
    for name in names:
        coarse = torch.rand(1, 1, 12, 10, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (390, 320), mode="bicubic").clamp(0, 1)
        noisy = (smooth[0, 0] + 0.03 * torch.randn(390, 320, generator=generator)).clamp(0, 1)
        Image.fromarray((255 * noisy).byte().numpy()).save(folder / name, quality=90)
    return names


def batches(count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows of batch after batch, without end."""
    while True:
        yield torch.randint(count, (BATCH,), generator=generator)


def rate(step, source: Iterator[object], steps: int, device: torch.device) -> float:  # type: ignore[no-untyped-def]
    """Images per second over some steps, after a few to warm up."""
    for item in itertools.islice(source, max(2, steps // 5)):
        step(item)
    wait(device)
    start = time.perf_counter()
    for item in itertools.islice(source, steps):
        step(item)
    wait(device)
    return steps * BATCH / (time.perf_counter() - start)


def wait(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="densenet121")
    parser.add_argument("--size", type=int, default=224, help="height and width that images are scaled to")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cores = len(os.sched_getaffinity(0))
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (options.images, TASKS), generator=generator).to(torch.int8)
    model = build(options.network, num_tasks=TASKS, channels=1).to(device)
    objective = auc.CrossEntropy(labels).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    on_device = labels.to(device)

    def step(item: tuple[Tensor, Tensor]) -> None:
        rows, images = item
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            objective.backward(model, auc.DenseBatch(images, on_device[rows.to(device)]))
        optimizer.step()

    with tempfile.TemporaryDirectory() as name:
        names = write_images(Path(name), options.images, generator)
        pixels = Pixels.of(IMAGENET_MEAN[:1], IMAGENET_STD[:1], pad=11, flip=False)
        files = ImageFiles(Path(name), names, Decoder(options.size, gray=True, fit="stretch"), pixels, 0)
        resident = next(files.to(device).stream(batches(options.images, generator), None))
        alone = rate(step, itertools.repeat(resident), options.steps, device)
        rows, result = [], []
        for workers in [count for count in options.workers if count <= cores]:
            streamed = ImageFiles(files.folder, names, files.decoder, pixels, workers).to(device)
            augment = torch.Generator().manual_seed(0)
            reading = rate(lambda item: None, streamed.stream(batches(len(names), generator), augment),
                           options.steps, device)  # fmt: skip
            both = rate(step, streamed.stream(batches(len(names), generator), augment), options.steps, device)
            rows.append([str(workers), f"{reading:,.0f}", f"{both:,.0f}", f"{both / alone:.2f}"])
            result.append({"workers": workers, "reading": reading, "training": both, "busy": both / alone})
    print_table(
        f"Images per second, {options.network}, {options.size} x {options.size}, batch {BATCH}; "
        f"on a batch that is there already: {alone:,.0f}",
        ["processes that read", "reading alone", "training from files", "share of that"],
        rows,
    )
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print_json(
        {"benchmark": "image_stream", "machine": {**machine(), "device": where, "cores": cores},
         "network": options.network, "size": options.size, "batch": BATCH, "resident": alone, "runs": result}
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""Do images on disk keep the device busy? Reading files or a cache, a training step, and both together.

    python benchmarks/image_stream.py                        # DenseNet121, on a GPU where there is one
    python benchmarks/image_stream.py --network resnet18 --color --batch 256
    python benchmarks/image_stream.py --network resnet18 --size 64 --images 400 --steps 5

JPEG files as large as those of CheXpert-small (390 x 320, gray or color) are written to a temporary folder,
and then decoded into a cache, as the data set `images` does. A step is that of cross-entropy on a batch of
them. If training from files is as fast as on a batch that is there already, the device never waits for files;
where it is not, the rate of reading says how many cores are short.
On a GPU, the share of time in which it computes is shown, too: with small batches it waits for this process
to launch the next kernel, whether images come from files or not.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from _timing import machine, print_json, print_table
from mmb import auc
from mmb._cores import available_cores
from mmb.data.files import cache
from mmb.data.inputs.image_cache import CachedImages, build_cache
from mmb.data.inputs.image_decoder import Decoder
from mmb.data.inputs.image_files import ImageFiles
from mmb.data.inputs.images import IMAGENET_MEAN, IMAGENET_STD, Pixels
from mmb.models import build

TASKS = 13
STYLES = (",.0f", ",.0f", ".2f", ".2f")
Item = tuple[Tensor, Tensor]  # rows, and their images


def write_images(folder: Path, count: int, channels: int, generator: torch.Generator) -> list[str]:
    """Smooth random images with some noise, about 20 kB each if they are gray, as X-rays are."""
    names = [f"{number:05d}.jpg" for number in range(count)]
    for name in names:
        coarse = torch.rand(1, channels, 12, 10, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (390, 320), mode="bicubic").clamp(0, 1)
        noisy = (smooth[0] + 0.03 * torch.randn(390, 320, generator=generator)).clamp(0, 1)
        pixels = (255 * noisy).byte().permute(1, 2, 0).squeeze(2).numpy()
        Image.fromarray(pixels).save(folder / name, quality=90)
    return names


def batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows of batch after batch, without end."""
    while True:
        yield torch.randint(count, (size,), generator=generator)


def rate(
    step: Callable[[Item], None], source: Iterator[Item], steps: int, device: torch.device
) -> tuple[float, float]:
    """Steps per second after a few to warm up, and the share of time in which a GPU computes."""

    def run(count: int) -> float:
        start = time.perf_counter()
        for item in itertools.islice(source, count):
            step(item)
        wait(device)
        return time.perf_counter() - start

    run(max(2, steps // 5))
    seconds = run(steps)
    if device.type != "cuda":
        return steps / seconds, 1.0
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        profiled = run(10)
    busy = sum(event.self_device_time_total for event in seen.key_averages()) / 1e6 / profiled
    return steps / seconds, busy


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
    parser.add_argument("--color", action="store_true", help="three channels instead of one")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cores = available_cores()
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (options.images, TASKS), generator=generator).to(torch.int8)
    channels = 3 if options.color else 1
    model = build(options.network, num_tasks=TASKS, channels=channels).to(device)
    objective = auc.CrossEntropy(labels).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    on_device = labels.to(device)

    def step(item: Item) -> None:
        rows, images = item
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            objective.backward(model, auc.DenseBatch(images, on_device[rows.to(device)]))
        optimizer.step()

    with tempfile.TemporaryDirectory() as name:
        names = write_images(Path(name), options.images, channels, generator)
        pixels = Pixels.of(IMAGENET_MEAN[:channels], IMAGENET_STD[:channels], pad=11, flip=False)
        decoder = Decoder(options.size, gray=not options.color, fit="stretch")
        files = ImageFiles(Path(name), names, decoder, pixels, 0)
        drawn = batches(options.images, options.batch, generator)
        resident = next(files.to(device).stream(drawn, None))
        alone, busy = rate(step, itertools.repeat(resident), options.steps, device)
        rows = [["a batch that is there", "", f"{options.batch * alone:,.0f}", "1.00", f"{busy:.2f}"]]
        first = {"training": options.batch * alone, "share": 1.0, "busy": busy}
        result: list[dict[str, object]] = [{"from": rows[0][0], **first}]
        sources: dict[str, ImageFiles | CachedImages] = {
            f"files, {workers} processes": replace(files, workers=workers)
            for workers in options.workers
            if workers <= cores
        }
        start = time.perf_counter()
        paths = [files.folder / name for name in names]
        cached = cache.read(build_cache(Path(name) / "cache", paths, files.decoder, None, None))[0]["images"]
        built = options.images / (time.perf_counter() - start)
        sources["the cache"] = CachedImages(cached, pixels, "")
        for source, inputs in sources.items():
            streamed, augment = inputs.to(device), torch.Generator().manual_seed(0)
            reading, _ = rate(lambda item: None, streamed.stream(drawn, augment), options.steps, device)
            both, busy = rate(step, streamed.stream(drawn, augment), options.steps, device)
            found = {
                "reading": options.batch * reading,
                "training": options.batch * both,
                "share": both / alone,
                "busy": busy,
            }
            cells = [format(value, style) for value, style in zip(found.values(), STYLES, strict=True)]
            rows.append([source, *cells])
            result.append({"from": source, **found})
    print_table(
        f"Images per second, {options.network}, {channels} x {options.size} x {options.size}, "
        f"batch {options.batch}",
        ["from", "reading alone", "training", "share of the first", "device busy"],
        rows,
    )
    print(f"The cache is built at {built:,.0f} images per second, with {cores} processes.")
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print_json(
        {"benchmark": "image_stream", "machine": {**machine(), "device": where, "cores": cores},
         "network": options.network, "size": options.size, "channels": channels, "batch": options.batch,
         "cache_built": built, "runs": result}
    )  # fmt: skip


if __name__ == "__main__":
    main()

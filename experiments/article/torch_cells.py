#!/usr/bin/env python3
"""The article's four cells in PyTorch, as lines that `pinline ablate --peer` reads.

    torch_cells.py --data DIR --out FILE.csv [--size 224] [--cache decoded] [--precision bf16]

A training loop as its users write it: ImageFolder, DataLoader, .to(). The cells differ in the pin_memory
of the loader and the non_blocking of the copies alone. Each cell-run trains new weights of the same seed
for one whole epoch, between two synchronisations of the device; the order of the cells is shuffled in
every round, and warm-up is outside. Options are named as those of pinline; those that mean nothing here
are passed over and named. What crosses the bus are normalised floats, whatever --transfer says, and
pin_memory also adds PyTorch's copying thread: that is what the flags are in PyTorch.
"""
import argparse
import csv
import os
import random
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset, Subset
    from torchvision import datasets, models, transforms
except ImportError as missing:
    sys.exit(f"torch_cells.py: {sys.executable} lacks PyTorch or torchvision ({missing}): install "
             "both, or name a Python that has them")

# Name, pin_memory of the loader, non_blocking of the copies.
CELLS = [
    ("PyTorch default", False, False),
    ("PyTorch pin_memory", True, False),
    ("PyTorch non_blocking", False, True),
    ("PyTorch both", True, True),
]
# Images kept by --cache decoded, as floats of 600 KB each at 224 pixels.
MOST_CACHED = 8192


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    cpus = len(os.sched_getaffinity(0))
    parser.add_argument("--data", required=True, help="folder of class folders, or one with train/")
    parser.add_argument("--out", required=True, help="CSV file to write")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch-size", "-b", type=int, default=64)
    parser.add_argument("--num-workers", "-j", type=int, default=max(1, cpus - 1))
    parser.add_argument("--model", default="smallcnn", choices=["smallcnn", "probe", "resnet18"])
    parser.add_argument("--precision", default="f32", choices=["f32", "tf32", "bf16"])
    parser.add_argument("--cache", default="none", choices=["none", "encoded", "decoded"],
                        help="decoded: normalised tensors in memory; encoded: as none, the page cache")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2, help="about so long a timed epoch")
    parser.add_argument("--limit-samples", type=int, default=0, help="at most; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options, others = parser.parse_known_args()
    if others:
        print("passed over: " + " ".join(others), file=sys.stderr)
    if options.rounds < 1 or options.batch_size < 1 or not options.seconds > 0:
        parser.error("--rounds, --batch-size and --seconds are above 0")
    if not os.path.isdir(options.data):
        parser.error(f"--data {options.data}: there is no such folder")
    # pinline's names of devices, as PyTorch has them.
    options.device = {"host": "cpu", "auto": "cuda" if torch.cuda.is_available() else "cpu"}.get(
        options.device, options.device)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: PyTorch {torch.__version__} finds no GPU; "
                     "--device host measures on the CPU")
    return options


# --- Images ---------------------------------------------------------------------------------------


class InMemory(Dataset):
    """The tensors of another set, decoded once."""

    def __init__(self, images, workers):
        pixels, labels = [], []
        for x, y in DataLoader(images, batch_size=64, num_workers=workers):
            pixels.append(x.clone())
            labels.append(y.clone())
        self.pixels, self.labels = torch.cat(pixels), torch.cat(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.pixels[i], self.labels[i]


def open_images(options):
    folder = os.path.join(options.data, "train")
    images = datasets.ImageFolder(
        folder if os.path.isdir(folder) else options.data,
        transforms.Compose([
            transforms.Resize((options.size, options.size)),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]))
    classes = len(images.classes)
    most = options.limit_samples or len(images)
    if options.cache == "decoded":
        most = min(most, MOST_CACHED)
    order = list(range(len(images)))
    random.Random(options.seed).shuffle(order)
    images = Subset(images, order[:most])
    if options.cache == "decoded":
        images = InMemory(images, options.num_workers)
    return images, classes


def make_loader(images, pin, options):
    return DataLoader(images, batch_size=options.batch_size, shuffle=True, pin_memory=pin,
                      num_workers=options.num_workers,
                      persistent_workers=options.num_workers > 0,
                      generator=torch.Generator().manual_seed(options.seed))


# --- Training -------------------------------------------------------------------------------------


def convolution(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def make_network(options, classes):
    if options.model == "resnet18":
        if options.size < 64:
            sys.exit("--model resnet18 has its small stem in pinline alone: take --size 64 or more")
        return models.resnet18(num_classes=classes)
    if options.model == "probe":
        return nn.Sequential(nn.Conv2d(3, 32, 3, stride=4, padding=1), nn.ReLU(),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes))
    layers = []
    inputs = 3
    for outputs in (32, 64, 128):
        layers += convolution(inputs, outputs) + convolution(outputs, outputs)
        layers += [nn.MaxPool2d(2)] if outputs < 128 else []
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def synchronise(options):
    if options.device.startswith("cuda"):
        torch.cuda.synchronize()


class Training:
    """New weights of the same seed, and one step."""

    def __init__(self, options, classes):
        torch.manual_seed(options.seed)
        self.options = options
        self.bf16 = options.precision == "bf16"
        self.network = make_network(options, classes).to(options.device)
        if self.bf16:
            self.network = self.network.to(memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9,
                                         weight_decay=5e-4)
        self.loss = nn.CrossEntropyLoss()

    def step(self, x, y, non_blocking):
        x = x.to(self.options.device, non_blocking=non_blocking)
        y = y.to(self.options.device, non_blocking=non_blocking)
        if self.bf16:
            x = x.contiguous(memory_format=torch.channels_last)
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast(self.options.device.split(":")[0], torch.bfloat16, enabled=self.bf16):
            loss = self.loss(self.network(x), y)
        loss.backward()
        self.optimiser.step()


def time_epoch(loader, non_blocking, options, classes):
    """Seconds and images of a whole epoch."""
    training = Training(options, classes)
    count = 0
    synchronise(options)
    begin = time.perf_counter()
    for x, y in loader:
        training.step(x, y, non_blocking)
        count += len(y)
    synchronise(options)
    return time.perf_counter() - begin, count


def fitting_count(images, options, classes):
    """So many images, in whole batches, as the first cell trains in the time of an epoch."""
    training = Training(options, classes)
    batches = 0
    begin = None
    for x, y in make_loader(images, False, options):
        training.step(x, y, False)
        batches += 1
        # Workers start before the first batch, and kernels are chosen with it.
        if begin is None:
            synchronise(options)
            begin = time.perf_counter()
        elif time.perf_counter() - begin >= options.seconds:
            break
    return min(len(images), max(batches, 10) * options.batch_size)


# --- Rounds ---------------------------------------------------------------------------------------


def run_rounds(images, classes, options):
    """Lines of name, samples a second, round, place in it, seconds, images; cell by cell."""
    loaders = {pin: make_loader(images, pin, options) for pin in (False, True)}
    for pin in (False, True):
        time_epoch(loaders[pin], pin, options, classes)
    lines = []
    for number in range(1, options.rounds + 1):
        order = CELLS[:]
        random.Random(1000 * options.seed + number).shuffle(order)
        for place, (name, pin, non_blocking) in enumerate(order):
            seconds, count = time_epoch(loaders[pin], non_blocking, options, classes)
            lines.append((name, count / seconds, number, place, seconds, count))
    names = [name for name, _, _ in CELLS]
    return sorted(lines, key=lambda line: names.index(line[0]))


def write_lines(lines, options):
    kept = "tensors in memory" if options.cache == "decoded" else "files"
    settings = (f"torch {torch.__version__}, {options.model} {options.precision}, {kept}, "
                f"size {options.size}, batch {options.batch_size}, workers {options.num_workers}")
    partial = options.out + ".partial"
    with open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "samples_per_s", "round", "place", "seconds", "samples",
                         "settings"])
        for name, rate, number, place, seconds, count in lines:
            writer.writerow([name, f"{rate:.1f}", number, place, f"{seconds:.4f}", count, settings])
    os.replace(partial, options.out)
    for name, _, _ in CELLS:
        rates = [line[1] for line in lines if line[0] == name]
        print(f"{name}: {statistics.median(rates):.0f} samples/s "
              f"({min(rates):.0f} to {max(rates):.0f}, {len(rates)} rounds)", file=sys.stderr)


def main():
    options = parse_options()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    images, classes = open_images(options)
    count = fitting_count(images, options, classes)
    images = Subset(images, range(count))
    write_lines(run_rounds(images, classes, options), options)
    # Everything is written. DataLoaders that end with the interpreter wait five seconds for each
    # worker that does not leave at once.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

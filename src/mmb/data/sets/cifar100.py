"""CIFAR-100: 60,000 color images of 32 x 32 pixels, one hundred one-vs-rest tasks.

By Krizhevsky (2009), no license stated. Read from the official binary archive. Split: 45,000 / 5,000 /
10,000; the 5,000 validation images are drawn from the training images, 50 of each class, by the seed. The
images live on the device; augmentation shifts by up to four pixels and mirrors.
"""

from mmb.data.sets.cifar import Archive, CifarSet

_SET = CifarSet(
    name="cifar100",
    classes=100,
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    pickles=("cifar-100-python.tar.gz", "cifar-100-python"),
    per_class=(500, 100),
    archives=(
        Archive(
            file="cifar-100-binary.tar.gz",
            checksum="03b5dce01913d631647c71ecec9e9cb8",
            layout="binary",
            folder="cifar-100-binary",
            train=("train.bin",),
            test=("test.bin",),
            others=("fine_label_names.txt",),
            label_bytes=2,
        ),
    ),
)
get, prepare, load = _SET.get, _SET.prepare, _SET.load

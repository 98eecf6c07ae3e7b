import torch

from mmb.data.inputs.images import ImageTensor, Pixels


def test_augmentation_is_a_shift_and_a_mirror():
    pixels = Pixels.of((0.0,) * 3, (1.0,) * 3, pad=2, flip=True)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (40, 3, 6, 5), generator=generator, dtype=torch.uint8)
    changed = pixels.augmented(images, generator)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    kinds = set()
    for image, black_edged in zip(changed, padded, strict=True):
        matches = {
            (top, left, mirrored)
            for top in range(5)
            for left in range(5)
            for mirrored in (False, True)
            if torch.equal(_cut(black_edged, top, left, mirrored), image)
        }
        assert len(matches) == 1
        kinds |= matches
    assert {mirrored for *_, mirrored in kinds} == {False, True}
    assert {top for top, *_ in kinds} == {left for _, left, _ in kinds} == set(range(5))


def _cut(padded, top, left, mirrored):
    window = padded[:, top : top + 6, left : left + 5]
    return window.flip(2) if mirrored else window


def test_without_pad_and_flip_nothing_changes():
    pixels = Pixels.of((0.0,) * 3, (1.0,) * 3, pad=0, flip=False)
    images = torch.randint(0, 256, (4, 1, 5, 5), dtype=torch.uint8, generator=torch.Generator())
    assert torch.equal(pixels.augmented(images, torch.Generator()), images)


def test_one_channel_becomes_three():
    pixels = Pixels.of((0.5, 0.0, 0.25), (0.5, 1.0, 0.25), pad=0, flip=False)
    inputs = ImageTensor(torch.tensor([[[[255]]], [[[0]]]], dtype=torch.uint8), pixels)
    assert inputs[torch.tensor([1, 0])].flatten(1).tolist() == [[-1.0, 0.0, -1.0], [1.0, 1.0, 3.0]]
    assert inputs.to("meta").pixels.mean.device.type == "meta"


def test_channels_of_a_pixel_lie_side_by_side():
    generator = torch.Generator().manual_seed(0)
    pixels = Pixels.of((0.4, 0.5, 0.6), (0.1, 0.2, 0.3), pad=2, flip=True)
    rows = torch.tensor([3, 0, 2])
    for channels in (1, 3):
        images = torch.randint(0, 256, (4, channels, 6, 5), generator=generator, dtype=torch.uint8)
        inputs = ImageTensor(images, pixels)
        for found in (inputs[rows], inputs.augmented(rows, generator)):
            assert found.shape == (3, 3, 6, 5)
            assert found.is_contiguous(memory_format=torch.channels_last)
        expected = (images[rows].float() / 255 - pixels.mean) / pixels.std
        assert torch.equal(inputs[rows], expected)

"""Decoding: depths, modes, windows, and files of every kind of damage."""

import importlib
import io
import random

import pytest
import torch

from mmb.data import DamagedDataError, DataError
from mmb.data.inputs.image_decoder import Decoder

pytest.importorskip("PIL")
image_sets = importlib.import_module("data.image_sets")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


def save(path, values, **options):
    Image.fromarray(values).save(path, **options)
    return path


def ramp16(top=65535):
    return np.linspace(0, top, 64).round().astype(np.uint16).reshape(8, 8)


def test_16_bit_images_keep_their_order_in_8_and_all_values_in_16(tmp_path):
    path = save(tmp_path / "deep.png", ramp16())
    eight = Decoder(8, gray=True)(path)
    assert eight.dtype == torch.uint8
    np.testing.assert_allclose(eight[0].numpy(), ramp16() / 257, atol=0.51)
    sixteen = Decoder(8, gray=True, bits=16)(path)
    assert sixteen.dtype == torch.uint16
    np.testing.assert_allclose(sixteen[0].numpy(), ramp16(), atol=1)
    assert Decoder(8)(path).shape == (3, 8, 8)


def test_8_bit_images_fill_16_bits(tmp_path):
    path = save(tmp_path / "flat.png", np.array([[0, 255], [1, 128]], np.uint8))
    assert Decoder(2, gray=True, bits=16)(path)[0].tolist() == [[0, 65535], [257, 128 * 257]]


def test_a_window_says_what_is_black_and_white(tmp_path):
    path = save(tmp_path / "deep.png", ramp16(4095))
    _, peak = Decoder(8).decode(path)
    assert peak == pytest.approx(4095 / 65535)
    image, peak = Decoder(8, gray=True, window=(1000, 3000)).decode(path)
    assert peak == 1
    expected = np.clip((ramp16(4095) - 1000.0) / 2000, 0, 1) * 255
    np.testing.assert_allclose(image[0].numpy(), expected, atol=0.51)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_other_depths_need_a_window(tmp_path, kind):
    path = save(tmp_path / "deep.tiff", (ramp16().astype(kind) - 500) * 10)
    with pytest.raises(DataError, match=r"deep\.tiff.*-5000(.|\n)*data\.window") as caught:
        Decoder(8)(path)
    assert not isinstance(caught.value, DamagedDataError)
    hole = ramp16().astype(np.float32)
    hole[3, 3] = np.nan
    with pytest.raises(DamagedDataError, match="finite"):
        Decoder(8, window=(0, 1))(save(tmp_path / "hole.tiff", hole))
    assert Decoder(8, window=(-5000, 650_350))(path).float().mean() == pytest.approx(127, abs=2)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_gray_or_color(tmp_path, mode):
    suffix = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    picture = Image.open(io.BytesIO(image_sets.photo(3, (20, 14)))).convert("RGB")
    picture.convert(mode).save(tmp_path / f"x.{suffix}")
    assert Decoder(8)(tmp_path / f"x.{suffix}").shape == (3, 8, 8)
    assert Decoder(8, gray=True)(tmp_path / f"x.{suffix}").shape == (1, 8, 8)


def test_colors_that_cannot_be_converted_are_no_damage(tmp_path):
    Image.merge("LAB", [Image.new("L", (4, 4), k) for k in (90, 100, 110)]).save(tmp_path / "x.tiff")
    with pytest.raises(DataError, match="LAB") as caught:
        Decoder(4)(tmp_path / "x.tiff")
    assert not isinstance(caught.value, DamagedDataError)


def test_bars_and_the_way_a_camera_was_held(tmp_path):
    white = np.full((10, 20), 255, np.uint8)
    padded = Decoder(20, gray=True, fit="pad")(save(tmp_path / "wide.png", white))
    assert padded[0, :5].max() == padded[0, 15:].max() == 0
    assert padded[0, 6:14].min() == 255
    half = np.zeros((16, 16), np.uint8)
    half[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    turned = Decoder(16, gray=True)(save(tmp_path / "turned.png", half, exif=exif))
    assert turned[0, :7].max() == 0
    assert turned[0, 9:].min() == 255


def test_several_images_in_a_file_are_refused(tmp_path):
    frames = [Image.new("L", (4, 4), k) for k in (1, 200)]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match=r"film\.gif.*2 images"):
        Decoder(4)(tmp_path / "film.gif")


def test_huge_images_are_not_called_damaged(tmp_path, monkeypatch):
    path = save(tmp_path / "huge.png", np.zeros((40, 40), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"huge\.png.*too large") as caught:
        Decoder(4)(path)
    assert not isinstance(caught.value, DamagedDataError)


def test_what_is_no_image_is_said_to_be_none(tmp_path):
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(DamagedDataError, match=r"empty\.png.*empty"):
        Decoder(4)(tmp_path / "empty.png")
    with pytest.raises(DataError, match=r"text\.png.*no image format"):
        Decoder(4)(tmp_path / "text.png")
    with pytest.raises(DataError, match="folder"):
        Decoder(4)(tmp_path)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="window"):
        Decoder(4, window=(3, 3))
    with pytest.raises(ValueError, match="size"):
        Decoder(0)


@pytest.mark.parametrize("suffix", ["png", "jpg", "tiff", "webp", "gif", "bmp"])
@pytest.mark.filterwarnings("ignore")  # Pillow has much to say about them
def test_any_damage_is_a_data_error_or_an_image_of_the_right_shape(tmp_path, suffix):
    """Truncated anywhere, with bytes flipped, cut out or put in: nothing else is ever raised."""
    rng = random.Random(suffix)
    out = io.BytesIO()
    picture = Image.open(io.BytesIO(image_sets.photo(1, (24, 18))))
    picture.save(out, {"jpg": "JPEG"}.get(suffix, suffix.upper()))
    sound, path, refused = out.getvalue(), tmp_path / f"x.{suffix}", 0
    for _ in range(150):
        content = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(content)) if content else 0
            how = rng.randrange(4)
            if how == 0:
                content = content[:place]
            elif how == 1 and content:
                content[place] = rng.randrange(256)
            elif how == 2:
                del content[place : place + rng.randrange(20)]
            else:
                content[place:place] = rng.randbytes(rng.randrange(20))
        path.write_bytes(bytes(content))
        found = decoded(path)
        assert found == (3, 8, 8) or path.name in found
        refused += found != (3, 8, 8)
    assert refused > 20


def decoded(path):
    """The shape of the image in a file, or why there is none."""
    try:
        return tuple(Decoder(8)(path).shape)
    except DataError as error:
        return str(error)


# -- DICOM ---------------------------------------------------------------------------------------------------


def dicom(path, values, **tags):
    pydicom = pytest.importorskip("pydicom")
    from pydicom.uid import ExplicitVRLittleEndian

    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    found = pydicom.Dataset()
    found.file_meta = meta
    bits = 8 * values.itemsize
    found.Rows, found.Columns = values.shape[:2]
    found.SamplesPerPixel = 1 if values.ndim == 2 else 3
    found.PhotometricInterpretation = "MONOCHROME2" if values.ndim == 2 else "RGB"
    if values.ndim == 3:
        found.PlanarConfiguration = 0
    found.BitsAllocated = found.BitsStored = bits
    found.HighBit, found.PixelRepresentation = bits - 1, int(values.dtype == np.int16)
    for name, value in tags.items():
        setattr(found, name, value)
    found.PixelData = values.tobytes()
    found.save_as(path, enforce_file_format=True)
    return path


def test_dicom_uses_its_window_its_slope_and_its_sign(tmp_path):
    values = (ramp16(2000).astype(np.int16)) - 1000
    path = dicom(tmp_path / "ct", values, RescaleSlope=2, RescaleIntercept=100)  # no suffix
    whole = Decoder(8, gray=True)(path)[0].numpy()
    np.testing.assert_allclose(whole, (values + 1000) / 2000 * 255, atol=0.51)
    tags = {"WindowCenter": [100.5, 7], "WindowWidth": [201, 7]}  # the first window counts: 0 to 200
    path = dicom(tmp_path / "windowed.dcm", values, RescaleSlope=2, RescaleIntercept=100, **tags)
    stated = Decoder(8, gray=True)(path)[0].numpy()
    np.testing.assert_allclose(stated, np.clip((values * 2.0 + 100) / 200, 0, 1) * 255, atol=0.51)
    given = Decoder(8, gray=True, window=(-100, 300))(path)[0].numpy()
    np.testing.assert_allclose(given, np.clip((values * 2.0 + 200) / 400, 0, 1) * 255, atol=0.51)


def test_dicom_with_white_at_zero_is_turned_around(tmp_path):
    values = ramp16(4095)
    first = Decoder(8, bits=16)(dicom(tmp_path / "a.dcm", values))
    second = Decoder(8, bits=16)(dicom(tmp_path / "b.dcm", values, PhotometricInterpretation="MONOCHROME1"))
    assert ((first.int() + second.int()) - 65535).abs().max() <= 1


def test_dicom_in_color_and_in_frames(tmp_path):
    colors = np.zeros((8, 8, 3), np.uint8)
    colors[..., 1] = 200
    assert Decoder(8)(dicom(tmp_path / "c.dcm", colors)).float().mean((1, 2)).tolist() == [0, 200, 0]
    film = dicom(tmp_path / "film.dcm", np.zeros((8, 8), np.uint8), NumberOfFrames=3)
    with pytest.raises(DataError, match=r"film\.dcm.*3 frames"):
        Decoder(8)(film)


def test_dicom_with_a_palette_has_its_colors(tmp_path):
    tags = {"PhotometricInterpretation": "PALETTE COLOR"}
    for name, last in {"Red": 60000, "Green": 0, "Blue": 30000}.items():
        tags[f"{name}PaletteColorLookupTableDescriptor"] = [2, 0, 16]
        table = np.array([0, last], np.uint16).tobytes()
        tags[f"{name}PaletteColorLookupTableData"] = table
    places = np.zeros((8, 8), np.uint8)
    places[:4] = 1
    found = Decoder(8)(dicom(tmp_path / "p.dcm", places, **tags))
    assert found[:, 0, 0].tolist() == [233, 0, 117]  # of 255
    assert found[:, 7, 7].tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore")  # pydicom has much to say about them
def test_damaged_dicom_is_a_data_error(tmp_path):
    sound = dicom(tmp_path / "x.dcm", ramp16()).read_bytes()
    rng, refused = random.Random(0), 0
    for _ in range(200):
        content = bytearray(sound[: rng.randrange(132, len(sound))] if rng.random() < 0.5 else sound)
        for _ in range(rng.randrange(4)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        (tmp_path / "x.dcm").write_bytes(content)
        found = decoded(tmp_path / "x.dcm")
        assert found == (3, 8, 8) or "x.dcm" in found
        refused += found != (3, 8, 8)
    assert refused > 50


def test_dicom_without_its_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(bytes(128) + b"DICM")
    monkeypatch.setitem(importlib.import_module("sys").modules, "pydicom", None)
    with pytest.raises(ImportError, match=r"mmb\[dicom\]"):
        Decoder(8)(tmp_path / "x")

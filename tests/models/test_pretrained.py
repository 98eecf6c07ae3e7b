"""Image networks, and weights for them from files in torchvision's names."""

from __future__ import annotations

import hashlib

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mmb.models import MultiTask, build, densenet121, load_pretrained, load_weights, resnet18


def norm_entries(name, channels, counter):
    entries = {f"{name}.{key}": (channels,) for key in ("weight", "bias", "running_mean", "running_var")}
    return entries | ({f"{name}.num_batches_tracked": ()} if counter else {})


def torchvision_resnet18(counter=True):
    """Names and shapes of `torchvision.models.resnet18().state_dict()`."""
    shapes = {"conv1.weight": (64, 3, 7, 7)} | norm_entries("bn1", 64, counter)
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            shapes[f"{name}.conv1.weight"] = (width, before, 3, 3)
            shapes |= norm_entries(f"{name}.bn1", width, counter)
            shapes[f"{name}.conv2.weight"] = (width, width, 3, 3)
            shapes |= norm_entries(f"{name}.bn2", width, counter)
            if before != width:
                shapes[f"{name}.downsample.0.weight"] = (width, before, 1, 1)
                shapes |= norm_entries(f"{name}.downsample.1", width, counter)
            before = width
    return shapes | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def torchvision_densenet121(counter=True, old=False):
    """Names and shapes of `torchvision.models.densenet121().state_dict()`; old: of the published file."""
    dot = "." if old else ""
    shapes = {"features.conv0.weight": (64, 3, 7, 7)} | norm_entries("features.norm0", 64, counter)
    channels = 64
    for block, depth in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, depth + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            shapes |= norm_entries(f"{name}.norm{dot}1", channels, counter)
            shapes[f"{name}.conv{dot}1.weight"] = (128, channels, 1, 1)
            shapes |= norm_entries(f"{name}.norm{dot}2", 128, counter)
            shapes[f"{name}.conv{dot}2.weight"] = (32, 128, 3, 3)
            channels += 32
        if block < 4:
            shapes |= norm_entries(f"features.transition{block}.norm", channels, counter)
            shapes[f"features.transition{block}.conv.weight"] = (channels // 2, channels, 1, 1)
            channels //= 2
    shapes |= norm_entries("features.norm5", channels, counter)
    return shapes | {"classifier.weight": (1000, 1024), "classifier.bias": (1000,)}


def weights_of(shapes, seed=0):
    """Tensors that can be told apart, with variances that are positive."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.tensor(7) if shape == () else torch.rand(shape, generator=generator) * 0.1 + 0.05
        for name, shape in shapes.items()
    }


def images(size, channels=3):
    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(1))


CASES = {
    "resnet18": (resnet18, torchvision_resnet18(), 11_689_512),
    "resnet18 without counters": (resnet18, torchvision_resnet18(counter=False), 11_689_512),
    "densenet121": (densenet121, torchvision_densenet121(), 7_978_856),
    "densenet121 as published": (densenet121, torchvision_densenet121(counter=False, old=True), 7_978_856),
}


@pytest.mark.parametrize(
    ("case", "suffix"), [*((case, ".pth") for case in CASES), ("resnet18", ".safetensors")]
)
def test_every_tensor_of_a_torchvision_file_lands(case, suffix, tmp_path):
    build, shapes, parameters = CASES[case]
    is_parameter = [k for k in shapes if "running" not in k and "tracked" not in k]
    assert sum(torch.Size(shapes[k]).numel() for k in is_parameter) == parameters  # as torchvision documents
    weights, path = weights_of(shapes), tmp_path / f"weights{suffix}"
    torch.save(weights, path) if suffix == ".pth" else save_file(weights, path)
    loaded = build(num_tasks=3, weights=path)
    # Order tells which tensor is which: both networks list theirs in the order of their layers.
    landed = [v for k, v in loaded.encoder.state_dict().items() if "tracked" not in k]
    given = [v for k, v in weights.items() if "tracked" not in k and not k.startswith(("fc", "classifier"))]
    assert len(landed) == len(given)
    assert all(torch.equal(one, two) for one, two in zip(landed, given, strict=True))


def test_resnet18_computes_what_its_names_say(tmp_path):
    """The whole network by hand from the file's tensors."""
    weights, path = weights_of(torchvision_resnet18()), tmp_path / "weights.pth"
    torch.save(weights, path)
    functional = nn.functional

    def conv(name, x, stride, padding):
        return functional.conv2d(x, weights[f"{name}.weight"], stride=stride, padding=padding)

    def norm(name, x):
        keys = ("running_mean", "running_var", "weight", "bias")
        return functional.batch_norm(x, *(weights[f"{name}.{key}"] for key in keys))

    x = norm("bn1", conv("conv1", images(64), 2, 3)).relu()
    x = functional.max_pool2d(x, 3, 2, 1)
    for stage in range(1, 5):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = norm(f"{name}.bn1", conv(f"{name}.conv1", x, stride, 1)).relu()
            y = norm(f"{name}.bn2", conv(f"{name}.conv2", y, 1, 1))
            if stride == 2:
                x = norm(f"{name}.downsample.1", conv(f"{name}.downsample.0", x, 2, 0))
            x = (x + y).relu()
    network = resnet18(num_tasks=3, weights=path).eval()
    torch.testing.assert_close(network.encoder(images(64)), x.mean((2, 3)), rtol=1e-4, atol=1e-4)


def test_stems():
    cifar = resnet18(num_tasks=5, stem="cifar")
    assert cifar.encoder.conv1.weight.shape == (64, 3, 3, 3)
    sizes = []
    cifar.encoder.layer4.register_forward_hook(lambda *args: sizes.append(args[2].shape[2:]))
    assert cifar(images(32)).shape == (2, 5)
    assert sizes == [(4, 4)]  # only the three strides of the stages
    with pytest.raises(ValueError, match=r"stem.*cifar.*imagenet.*small"):
        resnet18(num_tasks=5, stem="small")


@pytest.mark.parametrize("build", [resnet18, densenet121])
def test_one_channel_and_gradients(build):
    network = build(num_tasks=4, channels=1)
    network(images(64, channels=1)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_densenet_dropout():
    torch.manual_seed(0)
    network = densenet121(num_tasks=2, dropout=0.5)
    assert not torch.equal(network(images(64)), network(images(64)))


def test_a_file_for_another_network_is_refused(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(weights_of(torchvision_densenet121()), path)
    with pytest.raises(ValueError, match=r"missing.*: conv1.weight.*unexpected.*: features.conv0"):
        resnet18(num_tasks=2, weights=path)
    torch.save(weights_of(torchvision_resnet18()), path)
    with pytest.raises(ValueError, match=r"conv1.weight.*\[64, 3, 7, 7\].*\[64, 3, 3, 3\]") as refusal:
        resnet18(num_tasks=2, stem="cifar", weights=path)
    assert "begin with" not in str(refusal.value)  # its names are right


@pytest.mark.parametrize("make", [resnet18, densenet121])
def test_the_weights_of_a_whole_network_of_this_package_are_taken(make, tmp_path):
    source, path = make(num_tasks=5), tmp_path / "weights.safetensors"
    save_file(source.state_dict(), path)
    found = make(num_tasks=2, weights=path).encoder.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in source.encoder.state_dict().items())


def load(path):
    load_pretrained(nn.Linear(2, 2), path, rename=str, classifier="fc")


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_files_that_are_not_state_dicts_are_refused(name, tmp_path):
    path = tmp_path / name
    with pytest.raises(FileNotFoundError, match="weights"):
        load(path)
    for content in (b"", b"not weights", b"\x80\x02]q\x00."):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="state dict"):
            load(path)


def test_a_file_that_would_run_code_is_refused(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(nn.Linear(2, 2), path)  # a whole module: would need its classes
    with pytest.raises(ValueError, match="state dict"):
        load(path)


def network(outputs=3, prefix=False):
    layers = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())
    return MultiTask(layers, 5, outputs) if prefix else nn.Sequential(layers, nn.Linear(5, outputs))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_network_starts_from_its_own_weights_or_those_of_its_encoder(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"

    def save(weights):
        torch.save(weights, path) if suffix == ".pt" else save_file(weights, path)

    source, other = network(), network(outputs=7)
    save(source.state_dict())
    target = network()
    assert load_weights(target, path) == []
    assert all(torch.equal(value, source.state_dict()[name]) for name, value in target.state_dict().items())
    head = other[1].weight.clone()
    assert load_weights(other, path) == ["1.weight", "1.bias"]  # of other tasks
    assert torch.equal(other[0][0].weight, source[0][0].weight)
    assert torch.equal(other[1].weight, head)
    save(source[0].state_dict())  # the encoder alone
    multitask = network(prefix=True)
    assert load_weights(multitask, path) == ["weight", "bias"]
    assert torch.equal(multitask.encoder[0].weight, source[0][0].weight)


def test_weights_that_do_not_fit_leave_a_network_alone(tmp_path):
    path, target = tmp_path / "weights.pt", network()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    wide = nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3))
    for weights in (wide.state_dict(), {"x": torch.ones(3)}, {"0.0.weight": torch.ones(5, 4)}):
        torch.save(weights, path)
        with pytest.raises(ValueError, match=r"last layer.*0\.\d\.\w+ \[5"):
            load_weights(target, path)
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


@pytest.mark.parametrize("prefix", [True, False])
def test_a_layer_before_the_last_may_not_be_missing(tmp_path, prefix):
    """One missing layer is taken for another last layer only where it may be that."""
    path, source = tmp_path / "weights.pt", network(prefix=prefix).state_dict()
    first = "encoder.0." if prefix else "0.0."
    torch.save({name: value for name, value in source.items() if not name.startswith(first)}, path)
    with pytest.raises(ValueError, match=rf"only the last layer.*{first}weight"):
        load_weights(network(prefix=prefix), path)


@pytest.mark.parametrize("prefix", ["module.", "net.model."])
def test_a_prefix_of_names_is_named(tmp_path, prefix):
    path, source = tmp_path / "weights.pt", network(prefix=True)

    def save(weights):
        torch.save({f"{prefix}{name}": tensor for name, tensor in weights.items()}, path)

    for part in (source, source.encoder):
        save(part.state_dict())
        with pytest.raises(ValueError, match=rf"begin with '{prefix}'.*without"):
            load_weights(network(prefix=True), path)
    save(weights_of(torchvision_resnet18()))
    with pytest.raises(ValueError, match=rf"begin with '{prefix}'.*without"):
        resnet18(num_tasks=2, weights=path)


def test_an_entry_that_has_the_weights_is_named(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"epoch": 3, "state_dict": network().state_dict()}, path)
    with pytest.raises(ValueError, match=r"'state_dict'.*alone"):
        load_weights(network(), path)


def test_a_file_with_another_checksum_is_refused(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(weights_of(torchvision_resnet18()), path)
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    resnet18(num_tasks=2, weights=path, sha256=right.upper())
    with pytest.raises(ValueError, match=f"sha256.*{right}"):
        resnet18(num_tasks=2, weights=path, sha256="00")
    torch.save(network().state_dict(), path)
    with pytest.raises(ValueError, match="sha256"):
        load_weights(network(), path, right)


def test_every_network_by_name_or_path_has_a_start(tmp_path):
    path = tmp_path / "weights.pt"
    source = build("mlp", num_inputs=4, num_tasks=9, hidden=[5], seed=1)
    torch.save(source.state_dict(), path)
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    found = build("mlp", num_inputs=4, num_tasks=2, hidden=[5], seed=2, weights=str(path), sha256=right)
    first = next(name for name in found.state_dict() if name.startswith("encoder."))
    assert torch.equal(found.state_dict()[first], source.state_dict()[first])
    options = {"num_inputs": 4, "num_tasks": 2, "width": 3}
    own = build("own_parts:build", **options, seed=1)
    torch.save(own.state_dict(), path)
    again = build("own_parts:build", **options, seed=2, weights=path)
    assert torch.equal(again[0].weight, own[0].weight)

"""Networks: any module with one output per task can be trained; these are ready to use."""

from typing import TYPE_CHECKING, Any

from mmb._renamed import renamed_names
from mmb.models.batch_norm import freeze_batch_norm, recalibrate_batch_norm
from mmb.models.image_networks import densenet121, resnet18
from mmb.models.multilayer_perceptron import mlp
from mmb.models.multitask import MultiTask
from mmb.models.pretrained import load_pretrained, load_weights
from mmb.models.ranges import Ranges
from mmb.models.registry import available_networks, build, network_options

if TYPE_CHECKING:
    from mmb.models.graph_isomorphism import gin

__all__ = [
    "MultiTask",
    "Ranges",
    "available_networks",
    "build",
    "densenet121",
    "freeze_batch_norm",
    "gin",
    "load_pretrained",
    "load_weights",
    "mlp",
    "network_options",
    "recalibrate_batch_norm",
    "resnet18",
]

_old_names = renamed_names(
    __name__, {"available": "mmb.models.available_networks", "options": "mmb.models.network_options"}
)


def __getattr__(name: str) -> Any:
    if name == "gin":  # imported when needed: on a machine with a GPU it imports Triton
        from mmb.models.graph_isomorphism import gin

        return gin
    return _old_names(name)

"""Small nets as their scalar twins."""

from protofission.methods.parts.inner_step import SmallNet
from reference.inner import Net


def scalar_net(net: SmallNet) -> Net:
    return Net(net.hidden.tolist(), net.hidden_bias.tolist(), net.weight.tolist(), net.bias.item())

"""flex_attention without torch.compile is torch's reference in single operations; its list of devices lacks this one."""

from headrace.integrations import add_device


def register(module):
    add_device(module._validate_device, beside="hpu")

# SPDX-License-Identifier: Apache-2.0
"""Other frameworks' quantization-aware training at 8 bits, weights per channel, for training_peers.py.

Each framework's function takes the name of a network of torchvision and images, and returns the network to train and a switch: called
with False, the network computes as if nothing were quantized, called with True it quantizes again.
"""
import contextlib
import sys

import torch
import torch.ao.quantization
import torchvision
from torch.ao.quantization import quantize_fx

CALIBRATION_IMAGES = 32


def network(name, images, source=torchvision.models, **options):
    """Random weights, where the images are, channels-last, in training mode."""
    return getattr(source, name)(weights=None, **options).to(images.device, memory_format=torch.channels_last).train()


def switch_by_apply(model, enable, disable):
    return lambda on: model.apply(enable if on else disable)


def torch_ao(model):
    return model, switch_by_apply(model, torch.ao.quantization.enable_fake_quant, torch.ao.quantization.disable_fake_quant)


def torch_ao_fx(name, images):
    """torch.ao's graph mode: fused modules, every edge observed."""
    mapping = torch.ao.quantization.get_default_qat_qconfig_mapping("fbgemm")
    return torch_ao(quantize_fx.prepare_qat_fx(network(name, images), mapping, (images[:2],)))


def torch_ao_eager(name, images):
    """torch.ao's eager mode, on torchvision's own quantizable networks."""
    model = network(name, images, torchvision.models.quantization, quantize=False)
    model.fuse_model(is_qat=True)
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return torch_ao(torch.ao.quantization.prepare_qat(model))


def modelopt(name, images):
    """NVIDIA's Model Optimizer as it comes: inputs and weights of convolutions and linears, ranges fixed by calibration, its own CUDA kernels."""
    with contextlib.redirect_stdout(sys.stderr):  # it talks
        import modelopt.torch.quantization as mtq
        from modelopt.torch.quantization import extensions, nn
        if images.is_cuda:
            extensions.get_cuda_ext(raise_if_failed=True)  # built at first use; without it modelopt would be slow and not say so here
        model = mtq.quantize(network(name, images), mtq.INT8_DEFAULT_CFG, lambda model: model(images[:CALIBRATION_IMAGES]))
    quantizers = [module for module in model.modules() if isinstance(module, nn.TensorQuantizer) and module.is_enabled]

    def switch(on):
        for quantizer in quantizers:
            quantizer.enable() if on else quantizer.disable()
    return model, switch


def in_float32(quantizer):
    """Not as it comes: torchao's fake quantizers refuse autocast's halves, so each gets float32 and gives back what came in."""
    as_it_comes = quantizer.forward

    def forward(x):
        with torch.autocast(x.device.type, enabled=False):
            return as_it_comes(x.float()).to(x.dtype)
    quantizer.forward = forward


def pt2e(name, images):
    """torchao's PT2E with the x86 quantizer: BatchNorm folded into fake-quantized weights, moving averages; patched by in_float32."""
    from torchao.quantization import pt2e as torchao_pt2e
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
    exported = torch.export.export(network(name, images), (images,), strict=True).module()
    model = quantize_pt2e.prepare_qat_pt2e(exported, quantizer)
    torchao_pt2e.move_exported_model_to_train(model)
    for module in model.modules():
        if isinstance(module, torchao_pt2e.FakeQuantizeBase):
            in_float32(module)
    with torch.no_grad():
        model(images)  # its observers take their sizes from the first images, which torch.compile must not see
    return model, switch_by_apply(model, torchao_pt2e.enable_fake_quant, torchao_pt2e.disable_fake_quant)

#!/usr/bin/env python3
"""One of PyTorch's ways to train or run a network, measured once; prints one JSON object.

    tools/bench/training_peers.py --peer amp --model resnet50
    tools/bench/training_peers.py --peer inference --model resnet50 --batch 1

Random images stay on the GPU, channels-last; every step is timed with CUDA events; the figure is the median. Training steps are forward,
cross-entropy, backward, SGD with Nesterov momentum (fused). Peak memory is what the step's tensors take at most, after warm-up.
A way that PyTorch refuses gives {"refused": its message}. tools/bench/training.sh runs all of them beside octet.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.ao.quantization
import torchvision
from torch.ao.quantization import quantize_fx

WARM_UP_STEPS = 10
GIB = 2**30


def network(name):
    return getattr(torchvision.models, name)(weights=None).cuda().to(memory_format=torch.channels_last)


def quantized_fx(name, images):
    """The graph-mode way: fused modules, per-channel weights, every edge observed."""
    mapping = torch.ao.quantization.get_default_qat_qconfig_mapping("fbgemm")
    return quantize_fx.prepare_qat_fx(network(name).train(), mapping, (images[:2],))


def quantized_eager(name, images):
    """The eager way, on torchvision's own quantizable networks."""
    model = getattr(torchvision.models.quantization, name)(weights=None, quantize=False).cuda().train()
    model.fuse_model(is_qat=True)
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return torch.ao.quantization.prepare_qat(model.to(memory_format=torch.channels_last))


def random_images(options):
    generator = torch.Generator("cuda").manual_seed(1)
    shape = (options.batch, 3, options.size, options.size)
    return torch.randn(shape, device="cuda", generator=generator).to(memory_format=torch.channels_last)


def training_step(model, images, low_precision):
    """A function that makes one step. low_precision: float16 under autocast with a gradient scaler, bfloat16, or None for float32."""
    labels = torch.randint(0, 1000, (len(images),), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=low_precision is torch.float16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", low_precision, enabled=low_precision is not None):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return step


def inference_step(name, images):
    """fp16, BatchNorm folded into the convolutions, captured in a CUDA graph."""
    from torch.fx.experimental import optimization
    model = optimization.fuse(network(name).eval()).half().to(memory_format=torch.channels_last)
    images = images.half().to(memory_format=torch.channels_last)
    stream = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(images)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            graph.logits = model(images)
    return graph.replay


def make_step(peer, options):
    images = random_images(options)
    if peer == "inference":
        return inference_step(options.model, images)
    if peer in ("qat", "qat_amp"):
        quantized = {"fx": quantized_fx, "eager": quantized_eager}[options.qat]
        return training_step(quantized(options.model, images), images, torch.float16 if peer == "qat_amp" else None)
    model = network(options.model).train()
    if peer == "amp_compile":
        model = torch.compile(model)
    return training_step(model, images, None if peer == "tf32" else torch.float16)


def timed(step, seconds):
    """Milliseconds of each step, for about `seconds`, after warm-up."""
    def run(count):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        for event in events[:-1]:
            event.record()
            step()
        events[-1].record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) for a, b in zip(events, events[1:])]
    run(WARM_UP_STEPS)
    guess = statistics.median(run(5))
    torch.cuda.reset_peak_memory_stats()
    return run(max(10, min(5000, int(seconds * 1e3 / guess))))


def machine():
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}


def measure(peer, options):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    result = {"program": "torch", "peer": peer, "model": options.model, "batch": options.batch, "size": options.size, **machine()}
    try:
        times = timed(make_step(peer, options), options.seconds)
    except RuntimeError as error:
        return {**result, "refused": str(error).splitlines()[0]}
    times.sort()
    median = statistics.median(times)
    return {**result, "runs": len(times), "median_ms": median, "p10_ms": times[len(times) // 10], "p90_ms": times[len(times) * 9 // 10],
            "images_per_second": 1e3 * options.batch / median, "peak_gib": torch.cuda.max_memory_allocated() / GIB}


PEERS = ("tf32", "amp", "amp_compile", "qat", "qat_amp", "inference")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, choices=PEERS)
    parser.add_argument("--model", required=True, choices=("resnet18", "resnet50", "mobilenet_v2"))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring")
    parser.add_argument("--qat", choices=("fx", "eager"), default="fx", help="which of torch.ao's two ways (default: fx)")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("training_peers: PyTorch sees no GPU")
    print(json.dumps(measure(options.peer, options)))


if __name__ == "__main__":
    main()

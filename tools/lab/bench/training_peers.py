#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One of PyTorch's ways to train or run a network, measured once; prints one JSON object.

    tools/lab/bench/training_peers.py --peer amp --model resnet50
    tools/lab/bench/training_peers.py --peer inference --model resnet50 --batch 1

Random images stay on the GPU, channels-last; every step is timed with CUDA events; the figure is the median. Training steps are forward,
cross-entropy, backward, SGD with Nesterov momentum (fused). Peak memory is what the step's tensors take at most, after warm-up.
A way that PyTorch refuses gives {"refused": its message}. tools/lab/bench/training.sh runs all of them beside octet.
"""
import argparse
import json
import statistics
import sys

import torch
import torchvision

import qat_peers
import training_proof

WARM_UP_STEPS = 10
GIB = 2**30


QAT = {  # peer: how it quantizes, in float16 under autocast or not, compiled or not
    "qat": (qat_peers.torch_ao_fx, False, False),
    "qat_eager": (qat_peers.torch_ao_eager, False, False),
    "qat_amp": (qat_peers.torch_ao_fx, True, False),
    "modelopt": (qat_peers.modelopt, True, False),
    "pt2e_compile": (qat_peers.pt2e, True, True),
}


def random_images(options):
    generator = torch.Generator("cuda").manual_seed(1)
    shape = (options.batch, 3, options.size, options.size)
    return torch.randn(shape, device="cuda", generator=generator).to(memory_format=torch.channels_last)


def compiled_whole(model):
    """A frame that is compiled too often goes on uncompiled by default, which a slow figure would be the only sign of."""
    import torch._dynamo
    torch._dynamo.config.recompile_limit = 256
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(model)


class Training:
    """step() is timed: forward, cross-entropy, backward, update. low_precision: float16 under autocast, or None for float32."""

    def __init__(self, model, images, low_precision, compiled=False):
        self.model, self.images, self.low_precision = model, images, low_precision
        self.forward = compiled_whole(model) if compiled else model
        self.labels = torch.randint(0, 1000, (len(images),), device=images.device)
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True)
        for parameter in model.parameters():  # fused SGD leaves them uninitialized when the scaler skips its first step (torch 2.11)
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.scaler = torch.amp.GradScaler(images.device.type, enabled=low_precision is torch.float16)

    def autocast(self):
        return torch.autocast(self.images.device.type, self.low_precision, enabled=self.low_precision is not None)

    def logits(self):
        with self.autocast():
            return self.forward(self.images)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = torch.nn.functional.cross_entropy(self.forward(self.images), self.labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def inference_step(name, images):
    """fp16, BatchNorm folded into the convolutions, captured in a CUDA graph."""
    from torch.fx.experimental import optimization
    model = optimization.fuse(qat_peers.network(name, images).eval()).half().to(memory_format=torch.channels_last)
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


def make_training(peer, name, images):
    """A Training and, for QAT, the switch of its quantizers."""
    if peer not in QAT:
        return Training(qat_peers.network(name, images), images, None if peer == "tf32" else torch.float16, peer == "amp_compile"), None
    prepare, low_precision, compiled = QAT[peer]
    model, switch = prepare(name, images)
    return Training(model, images, torch.float16 if low_precision else None, compiled), switch


def measure_training(peer, options):
    training, switch = make_training(peer, options.model, random_images(options))
    result = figures(timed(training.step, options.seconds), options)
    result |= training_proof.check_gradients(training.model, training.step())
    if switch is not None:
        result |= training_proof.check_quantization(training.model, training.logits, switch)
    return result


def by_events(step, count):
    """Milliseconds of each of `count` steps on the GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def timed(step, seconds):
    """Milliseconds of each step, for about `seconds`, after warm-up."""
    by_events(step, WARM_UP_STEPS)
    guess = statistics.median(by_events(step, 5))
    torch.cuda.reset_peak_memory_stats()
    return by_events(step, max(10, min(5000, int(seconds * 1e3 / guess))))


def figures(times, options):
    times.sort()
    median = statistics.median(times)
    return {"runs": len(times), "median_ms": median, "p10_ms": times[len(times) // 10], "p90_ms": times[len(times) * 9 // 10],
            "images_per_second": 1e3 * options.batch / median, "peak_gib": torch.cuda.max_memory_allocated() / GIB}


def machine():
    return {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}


def measure(peer, options):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    result = {"program": "torch", "peer": peer, "model": options.model, "batch": options.batch, "size": options.size, **machine()}
    try:
        if peer == "inference":
            return result | figures(timed(inference_step(options.model, random_images(options)), options.seconds), options)
        return result | measure_training(peer, options)
    except RuntimeError as error:
        return {**result, "refused": str(error).splitlines()[0]}


PEERS = ("tf32", "amp", "amp_compile", *QAT, "inference")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", required=True, choices=PEERS)
    parser.add_argument("--model", required=True, choices=("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0"))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("training_peers: PyTorch sees no GPU")
    print(json.dumps(measure(options.peer, options)))


if __name__ == "__main__":
    main()

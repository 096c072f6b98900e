# SPDX-License-Identifier: Apache-2.0
"""YOLOX-S in PyTorch as its authors wrote it (github.com/Megvii-BaseDetection/YOLOX, Apache-2.0), for detector_gpu.py: its training step
under AMP, its forward pass in fp16, and the way from JPEG files to boxes. Their code is read from a folder with yolox/models and boxes.py,
ema.py and compat.py of yolox/utils; the rest of their package is not needed.
"""
import concurrent.futures
import contextlib
import importlib
import pathlib
import statistics
import sys
import time
import types

import torch

import training_peers

CLASSES, PLACES, GREY, OVERLAP, SEED = 80, 120, 114, 0.45, 1
WARM_UP_STEPS, FEWEST = 5, 10
GIB = 2**30


def their_code(folder):
    """Their modules models, boxes and ema; what they import beside them, a logger and pictures for debugging, is left out."""
    sys.path.insert(0, str(folder))
    if "loguru" not in sys.modules:
        sys.modules["loguru"] = types.ModuleType("loguru")
        sys.modules["loguru"].logger = None
    utils = sys.modules["yolox.utils"] = types.ModuleType("yolox.utils")
    utils.__path__ = [str(pathlib.Path(folder) / "yolox" / "utils")]
    for part in ("boxes", "compat", "ema"):
        module = importlib.import_module(f"yolox.utils.{part}")
        vars(utils).update({name: getattr(module, name) for name in module.__all__})
    utils.visualize_assign = None
    return types.SimpleNamespace(models=importlib.import_module("yolox.models"), boxes=utils.postprocess, ema=utils.ModelEMA)


def network(code, device):
    """YOLOX-S with the weights that its authors begin with, the same on every machine."""
    torch.manual_seed(SEED)
    channels = [256, 512, 1024]
    model = code.models.YOLOX(code.models.YOLOPAFPN(0.33, 0.5, in_channels=channels), code.models.YOLOXHead(CLASSES, 0.5, in_channels=channels))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps, module.momentum = 1e-3, 0.03
    model.head.initialize_biases(1e-2)
    return model.to(device)


def targets(batch, size, boxes):
    """[batch, PLACES, 5]: class, centre, size, by the rule that train_bench has (time_step.h)."""
    labels = torch.zeros(batch, PLACES, 5)
    for n in range(batch):
        for k in range(boxes):
            width, height = (size // 40 + (a * k + b * n) % (size * 2 // 5) for a, b in ((37, 11), (53, 29)))
            left, top = (91 * k + 17 * n) % (size - width), (67 * k + 41 * n) % (size - height)
            labels[n, k] = torch.tensor([(n + k) % CLASSES, left + width / 2, top + height / 2, width, height])
    return labels


def parameter_groups(model):
    """Weight decay for weights, none for BatchNorm and biases."""
    plain, decayed = [], []
    for module in model.modules():
        if isinstance(getattr(module, "bias", None), torch.nn.Parameter):
            plain.append(module.bias)
        if isinstance(getattr(module, "weight", None), torch.nn.Parameter):
            (plain if isinstance(module, torch.nn.BatchNorm2d) else decayed).append(module.weight)
    return [{"params": plain}, {"params": decayed, "weight_decay": 5e-4}]


class Training:
    """step() is what their trainer does with a batch: images and labels in fp16, forward and loss under autocast, GradScaler, SGD with
    Nesterov momentum, the moving average. tuned: channels-last, and without emptying PyTorch's cache of memory after each image."""

    def __init__(self, code, options, tuned):
        device = torch.device(options.device)
        self.kind, low = device.type, torch.float16 if device.type == "cuda" else torch.float32
        memory = {"memory_format": torch.channels_last} if tuned else {}
        self.model = network(code, device).to(**memory).train()
        self.images = torch.randn(options.batch, 3, options.size, options.size, device=device).to(dtype=low, **memory)
        self.labels = targets(options.batch, options.size, options.boxes).to(device, low)
        self.optimizer = torch.optim.SGD(parameter_groups(self.model), options.rate, momentum=0.9, nesterov=True)
        self.scaler = torch.amp.GradScaler(self.kind, enabled=self.kind == "cuda")
        self.average = code.ema(self.model, 0.9998)
        self.tuned = tuned

    def step(self):
        keeps = _without_emptying() if self.tuned else contextlib.nullcontext()
        with keeps, torch.autocast(self.kind, enabled=self.kind == "cuda", dtype=torch.float16 if self.kind == "cuda" else None):
            self.loss = self.model(self.images, self.labels)["total_loss"]
        self.optimizer.zero_grad()
        self.scaler.scale(self.loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update(self.model)


@contextlib.contextmanager
def _without_emptying():
    empty = torch.cuda.empty_cache
    torch.cuda.empty_cache = lambda: None
    try:
        yield
    finally:
        torch.cuda.empty_cache = empty


def milliseconds(step, seconds, device):
    """Of each call, sorted: by events on a GPU, after a warm-up."""
    def run(count):
        if device != "cpu":
            return training_peers.by_events(step, count)
        times = []
        for _ in range(count):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        return times
    run(WARM_UP_STEPS)
    guess = statistics.median(run(3))
    return sorted(run(max(FEWEST, min(5000, int(seconds * 1e3 / guess)))))


def measure_training(options, tuned):
    torch.backends.cudnn.benchmark = True  # as their tools/train.py
    training = Training(their_code(options.yolox), options, tuned)
    times = milliseconds(training.step, options.seconds, options.device)
    loss = float(training.loss.detach())
    if loss != loss or loss in (float("inf"), float("-inf")):
        return {"refused": f"the loss is {loss}: what was timed does not train"}
    result = {"median_ms": statistics.median(times), "p10_ms": times[len(times) // 10], "p90_ms": times[len(times) * 9 // 10], "runs": len(times),
              "loss": loss}
    if options.device == "cuda":
        result["peak_gib"] = torch.cuda.max_memory_allocated() / GIB
    return result


def ready_network(code, options):
    """In fp16 on a GPU, BatchNorm folded, channels-last; raw outputs [N, cells, 85], scores after their sigmoid."""
    model = network(code, "cpu").eval()
    model.load_state_dict(torch.load(options.weights), strict=False)
    for module in model.modules():
        if isinstance(module, code.models.network_blocks.BaseConv):
            module.conv = torch.nn.utils.fusion.fuse_conv_bn_eval(module.conv, module.bn)
            module.forward = module.fuseforward
            del module.bn
    model.head.decode_in_inference = False
    return model.to(options.device, torch.float16 if options.device == "cuda" else torch.float32, memory_format=torch.channels_last)


def in_graph(model, images):
    """A call that computes model(images), replayed as a CUDA graph where there is a GPU; and where its output lies."""
    if images.device.type == "cpu":
        output = model(images)
        return (lambda: output.copy_(model(images))), output
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(images)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(images)
    return graph.replay, output


def fitted(height, width, side):
    """The scale at which a picture fits a square, and its size then."""
    scale = min(side / height, side / width)
    return scale, int(height * scale), int(width * scale)


class OpenCv:
    name = "OpenCV"

    def __init__(self):
        import cv2
        self.cv2 = cv2
        cv2.setNumThreads(1)

    def read(self, file, to, side):
        picture = self.cv2.imread(file)
        scale, height, width = fitted(*picture.shape[:2], side)
        to[:height, :width] = torch.from_numpy(self.cv2.resize(picture, (width, height), interpolation=self.cv2.INTER_LINEAR))
        return scale


class Torchvision:
    name = "torchvision"

    def __init__(self):
        import torchvision.io
        self.io = torchvision.io
        torch.set_num_threads(1)  # each file is read by a thread of the caller

    def read(self, file, to, side):
        picture = self.io.read_image(file, self.io.ImageReadMode.RGB)
        scale, height, width = fitted(*picture.shape[1:], side)
        resized = torch.nn.functional.interpolate(picture[None], (height, width), mode="bilinear", align_corners=False)[0]
        to[:height, :width] = resized.flip(0).permute(1, 2, 0)
        return scale


def reader():
    try:
        return OpenCv()
    except ImportError:
        return Torchvision()


class Boxes:
    """From files to boxes: OpenCV (torchvision where that is not installed, which the figure says) decodes and resizes in threads, the GPU
    normalizes, computes, decodes and suppresses with their code."""

    def __init__(self, code, replay, images, output, options):
        self.reader = reader()
        self.postprocess, self.replay, self.images, self.output = code.boxes, replay, images, output
        self.size, self.score = options.size, options.score
        levels = []
        for stride in (8, 16, 32):
            y, x = torch.meshgrid(*[torch.arange(options.size // stride)] * 2, indexing="ij")
            levels.append(torch.stack([x.flatten(), y.flatten(), torch.full((x.numel(),), stride)], 1))
        self.cells = torch.cat(levels).to(output)

    def memory(self, count):
        """Grey pixels, uint8 [count, H, W, 3]; page-locked on a GPU's host."""
        return torch.full((count, self.size, self.size, 3), GREY, dtype=torch.uint8, pin_memory=self.output.is_cuda)

    def read(self, files, pixels):
        """Writes the files' pixels, BGR with grey to the right and below; returns the scales."""
        return [self.reader.read(file, to, self.size) for to, file in zip(pixels, files)]

    def find(self, pixels, scales):
        self.images.copy_(pixels.to(self.images.device, non_blocking=True).permute(0, 3, 1, 2))
        self.replay()
        centre = (self.output[..., :2] + self.cells[:, :2]) * self.cells[:, 2:]
        size = self.output[..., 2:4].exp() * self.cells[:, 2:]
        outputs = torch.cat([centre, size, self.output[..., 4:]], 2)
        found = self.postprocess(outputs, CLASSES, self.score, OVERLAP)
        return [[] if boxes is None else (boxes[:, :4].float() / scale).cpu() for boxes, scale in zip(found, scales)]


def time_boxes(boxes, files, batch, seconds, threads):
    """One after the other with batch 1; in larger batches the next files are read while a batch is computed."""
    times, found, start = [], 0, time.perf_counter()

    def one(file):
        pixels = boxes.memory(1)
        return len(boxes.find(pixels, boxes.read([file], pixels))[0])

    if batch == 1:
        one(files[0])
        while time.perf_counter() - start < seconds or len(times) < len(files):
            begin = time.perf_counter()
            found += one(files[len(times) % len(files)])
            times.append(1e3 * (time.perf_counter() - begin))
        return {"median_ms": statistics.median(times), "runs": len(times), "boxes_an_image": found / len(times)}
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        def read_ahead(number):
            pixels = boxes.memory(batch)
            return pixels, [pool.submit(boxes.read, [files[(number * batch + i) % len(files)]], pixels[i:i + 1]) for i in range(batch)]

        ahead = [read_ahead(number) for number in range(3)]
        count = -WARM_UP_STEPS
        while count < FEWEST or time.perf_counter() - start < seconds:
            if count == 0:
                found, start = 0, time.perf_counter()
            pixels, reading = ahead.pop(0)
            scales = [scale for part in reading for scale in part.result()]
            ahead.append(read_ahead(count + WARM_UP_STEPS + 3))
            found += sum(len(of) for of in boxes.find(pixels, scales))
            count += 1
        elapsed = time.perf_counter() - start
    return {"images_per_second": count * batch / elapsed, "batches": count, "boxes_an_image": found / count / batch}


def measure_inference(options, batch, files):
    """The forward pass on images that lie on the GPU, as a CUDA graph and compiled; then the faster one from files to boxes."""
    torch.backends.cudnn.benchmark = True
    code = their_code(options.yolox)
    model = ready_network(code, options)
    images = torch.rand(batch, 3, options.size, options.size, device=options.device) * 255
    images = images.to(next(model.parameters()).dtype, memory_format=torch.channels_last)
    result, ways = {}, {"CUDA graph": model}
    if not options.no_compile:
        ways["torch.compile"] = torch.compile(model, dynamic=False)
    with torch.no_grad():
        ready = {}
        for name, way in ways.items():
            ready[name] = in_graph(way, images)
            result[name] = statistics.median(milliseconds(ready[name][0], options.seconds, options.device))
        fastest = min(result, key=result.get)
        boxes = Boxes(code, *(ready[fastest][0], images, ready[fastest][1]), options)
        return {"forward_ms": result, "fastest": fastest, "reader": boxes.reader.name, "boxes": time_boxes(boxes, files, batch, options.seconds, options.threads)}


def prepare(options, files):
    """Writes --weights, what a random network needs to find about 20 boxes in a photo: BatchNorm's statistics of photos, and objectness
    that varies; and beside it all weights, which `octet quantize` reads."""
    code = their_code(options.yolox)
    model = network(code, "cpu").eval()
    model.head.decode_in_inference = False
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all that it sees
            module.train()
    with torch.no_grad():
        boxes = Boxes(code, lambda: None, None, torch.zeros(1), options)
        pixels = boxes.memory(len(files))
        scales = boxes.read(files, pixels)
        boxes.images = pixels.permute(0, 3, 1, 2).float()
        model(boxes.images)
        model.eval()
        logits = torch.logit(model(boxes.images)[..., 4].double())
        gain = 2 / logits.std()
        limit = (logits * gain).flatten().topk(20 * len(files)).values[-1]
        for objectness, classes in zip(model.head.obj_preds, model.head.cls_preds):
            classes.bias.zero_()
            objectness.weight.mul_(gain)
            objectness.bias.mul_(gain).sub_(limit)
        boxes.output = model(boxes.images)
        found = boxes.find(pixels, scales)
    whole = model.state_dict()
    small = {name: tensor for name, tensor in whole.items() if "running" in name or "obj_preds" in name or "cls_preds" in name and "bias" in name}
    torch.save(small, options.weights)
    torch.save(whole, pathlib.Path(options.weights).with_suffix(".whole.pth"))
    return {"boxes": [len(of) for of in found]}

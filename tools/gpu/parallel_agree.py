"""Part agree of parallel.py: are weights of several GPUs those of one?"""
import time
from concurrent import futures

import gpus
import parallel_runs
import pictures
import tensors

LARGEST_DISTANCE = 1e-5  # asked, relative, over all weights
MOST_TIMES_ANOTHER_ORDER = 2  # of what one GPU is apart from itself with the pictures of each batch in another order


def agree(options):
    """BatchNorm would normalize each share by itself: a network without. An epoch is a step with one batch of all pictures: bits are compared
    after each, and the pictures' order in their files is that in the batch, shuffled alike. The control says what an order
    is worth: 50 steps of a deep network make more of one rounding than is asked, whoever adds up."""
    steps, batch = 3 if options.dry else 50, 256 if options.device == "cuda" else 32
    train_pictures, others = pictures.records(batch, seed=1), pictures.records(320, seed=2)
    for name, records in {"pictures": train_pictures, "other_order": train_pictures[::-1]}.items():
        pictures.write(options.folder / name, records, others[:64])
    pictures.write(options.folder / "test", train_pictures, others[64:])
    settings = [*parallel_runs.SHORT, "model.folded=true", "train.precision=fp32", "qat.precision=fp32", "cuda.deterministic=true",
                "cuda.tf32=false", "data.validation=test", "data.validation_fraction=0", "data.test=test", f"data.test_path={options.folder / 'test'}",
                "data.pad=0", "data.flip=false", "data.cutout=0", f"train.batch_size={batch}", f"qat.batch_size={batch}",
                "train.learning_rate=0.01", f"train.epochs={steps}", "quant.scales=fixed", "qat.epochs=0", "qat.float_control=false",
                "data.limit_validation=8", "data.limit_test=8"]
    seconds = {}

    def timed(name, count, of, gpu=0):
        start = time.monotonic()
        folder, data = options.folder / f"agree_{name}", f"data.path={options.folder / of}"
        words = parallel_runs.train("resnet20_cifar10_int8", folder, count, [*settings, data], options)
        parallel_runs.run(words, 90, gpus.environment(options.visible[gpu]) if count == 1 and options.visible else None)
        seconds[name] = round(time.monotonic() - start, 1)

    with futures.ThreadPoolExecutor() as pool:  # a GPU each
        for done in [pool.submit(timed, "one", 1, "pictures", 0), pool.submit(timed, "control", 1, "other_order", 1)]:
            done.result()
    timed("all", options.count, "pictures")
    apart, other_order = (tensors.largest_distance(*(options.folder / f"agree_{name}/float.safetensors" for name in ("one", other)))
                          for other in ("all", "control"))
    times = apart["of_all"] / other_order["of_all"]
    reached = apart["of_all"] <= LARGEST_DISTANCE
    return {"good": reached or times <= MOST_TIMES_ANOTHER_ORDER, "steps": steps, **apart, "asked": LARGEST_DISTANCE, "reached": reached,
            "other_order": other_order, "times_another_order": round(times, 2), "seconds": seconds}

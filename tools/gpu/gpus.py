"""The GPUs of this machine, and work spread over them."""
import os
import queue
import subprocess
import sys
import threading


def visible():
    """Their names for CUDA_VISIBLE_DEVICES; ends the program where they cannot be listed."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen:
        return chosen.split(",")
    try:
        listing = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"cannot list the GPUs: {error}")
    return listing.split()


def environment(gpu):
    """For a process that shall see this GPU alone; with None: no change."""
    return None if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}


def share(jobs, gpus, work, late=lambda: False):
    """Calls work(job, gpu) for every job, each of `gpus` (with repetition: several at a time) taking the next, until `late()`.

    Ctrl-C, or a job that raises: no job is begun any more, those that run are waited for, and the exception goes on.
    """
    stopped, raised = threading.Event(), []
    waiting = queue.Queue()
    for job in jobs:
        waiting.put(job)

    def take(gpu):
        while not late() and not stopped.is_set():
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                work(job, gpu)
            except BaseException as exception:
                raised.append(exception)
                stopped.set()

    workers = [threading.Thread(target=take, args=(gpu,)) for gpu in gpus]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        stopped.set()
        print("interrupted: waiting for what runs", file=sys.stderr)
        for worker in workers:
            worker.join()
        raise
    if raised:
        raise raised[0]

# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this machine, and work spread over them."""
import os
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


def share(jobs, gpus, work, late=lambda: False, ready=lambda job: True):
    """Calls work(job, gpu) for every job, each of `gpus` (with repetition: several at a time) taking the first that is ready, until `late()`.

    Jobs that no other job makes ready are left. Ctrl-C, or a job that raises: no job is begun any more, those that run are waited for, and
    the exception goes on.
    """
    waiting, raised, running, changed = list(jobs), [], [], threading.Condition()

    def next_job():
        """None: there is none, and none will be."""
        with changed:
            while not late() and not raised:
                job = next((job for job in waiting if ready(job)), None)
                if job is not None:
                    waiting.remove(job)
                    running.append(job)
                    return job
                if not waiting or not running:
                    break
                changed.wait(1)
            return None

    def take(gpu):
        while (job := next_job()) is not None:
            try:
                work(job, gpu)
            except BaseException as exception:
                raised.append(exception)
            finally:
                with changed:
                    running.remove(job)
                    changed.notify_all()

    workers = [threading.Thread(target=take, args=(gpu,)) for gpu in gpus]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt as interruption:
        raised.append(interruption)
        print("interrupted: waiting for what runs", file=sys.stderr)
        for worker in workers:
            worker.join()
    if raised:
        raise raised[0]

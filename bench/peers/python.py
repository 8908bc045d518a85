"""The lock libraries in Python, each behind the same two steps, driven line by line by the benchmark.

`python.py PEER URL...` connects, and then answers each line of its input with a number, and where it makes sense with a fairness:
`pair TIMES` (µs), `distinct TASKS TIMES` (pairs a second), `round TASKS MILLISECONDS` (changes of the holder a second).
"""

import json
import statistics
import sys
import threading
import time

TTL = 30


def redis_py(urls):
    import redis

    client = redis.Redis.from_url(urls[0])
    return lambda name: client.lock(name, timeout=TTL)


def python_redis_lock(urls):
    import redis
    import redis_lock

    client = redis.StrictRedis.from_url(urls[0])
    return lambda name: redis_lock.Lock(client, name, expire=TTL)


def pottery(urls):
    import pottery as library
    import redis

    masters = {redis.Redis.from_url(url) for url in urls}
    return lambda name: library.Redlock(key=name, masters=masters, auto_release_time=TTL)


def sherlock(urls):
    import redis
    import sherlock as library

    client = redis.StrictRedis.from_url(urls[0])
    options = {"client": client, "expire": TTL, "timeout": 60, "retry_interval": 0.01}
    return lambda name: library.RedisLock(name, **options)


def tooz(urls):
    from tooz import coordination

    url = urls[0].replace("zookeeper://", "kazoo://").replace("postgres://", "postgresql://")
    coordinator = coordination.get_coordinator(url, b"peer")
    coordinator.start(start_heart=True)
    return lambda name: coordinator.get_lock(name.encode())


def kazoo(urls):
    from kazoo.client import KazooClient

    client = KazooClient(hosts=urls[0].removeprefix("zookeeper://"))
    client.start()
    return lambda name: client.Lock("/" + name)


def etcd3(urls):
    import etcd3 as library

    host, port = urls[0].removeprefix("http://").split(":")
    client = library.client(host=host, port=int(port))
    return lambda name: client.lock(name, ttl=TTL)


def fasteners(urls):
    import fasteners as library

    return lambda name: library.InterProcessLock(f"{urls[0]}/{name}.fasteners")


def filelock(urls):
    import filelock as library

    return lambda name: library.FileLock(f"{urls[0]}/{name}.filelock", thread_local=False)


def portalocker(urls):
    import portalocker as library

    return lambda name: library.Lock(f"{urls[0]}/{name}.portalocker", timeout=60, check_interval=0.01)


PEERS = {
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
    "pottery": pottery,
    "sherlock": sherlock,
    "tooz": tooz,
    "kazoo": kazoo,
    "etcd3-py": etcd3,
    "fasteners": fasteners,
    "filelock": filelock,
    "portalocker": portalocker,
}


def pair(make, times):
    lock, micros = make("pair"), []
    for _ in range(times):
        began = time.perf_counter()
        lock.acquire()
        lock.release()
        micros.append((time.perf_counter() - began) * 1e6)
    return {"value": statistics.median(micros)}


def on_threads(work, tasks):
    threads = [threading.Thread(target=work, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def distinct(make, tasks, times):
    def work(task):
        lock = make(f"lock{task}")
        for _ in range(times):
            lock.acquire()
            lock.release()

    began = time.perf_counter()
    on_threads(work, tasks)
    return {"value": tasks * times / (time.perf_counter() - began)}


def round_robin(make, tasks, milliseconds):
    began, lasts = time.perf_counter(), milliseconds / 1000
    state = {"last": None, "changes": 0, "grants": [0] * tasks, "wait": 0.0}

    def work(task):
        lock = make("round")
        while time.perf_counter() - began < lasts:
            asked = time.perf_counter()
            lock.acquire()
            now = time.perf_counter()
            # Only the holder writes here. What is granted after the end was waited for by those who are late.
            if now - began < lasts:
                state["changes"] += state["last"] != task
                state["last"] = task
                state["grants"][task] += 1
            state["wait"] = max(state["wait"], now - asked)
            lock.release()

    on_threads(work, tasks)
    grants = state["grants"]
    jain = sum(grants) ** 2 / (tasks * max(1, sum(count * count for count in grants)))
    return {"value": state["changes"] / lasts, "jain": jain, "longest_wait_ms": state["wait"] * 1000}


MEASURES = {"pair": pair, "distinct": distinct, "round": round_robin}


def main():
    make = PEERS[sys.argv[1]](sys.argv[2:])
    print("ready", flush=True)
    for line in sys.stdin:
        measure, *numbers = line.split()
        print(json.dumps(MEASURES[measure](make, *map(int, numbers))), flush=True)


main()

// The lock libraries for Node, each behind the same two steps, driven line by line by the benchmark.
//
// `node.mjs PEER URL...` connects, and then answers each line of its input with a number, and where it makes sense with a fairness:
// `pair TIMES` (µs), `distinct TASKS TIMES` (pairs a second), `round TASKS MILLISECONDS` (changes of the holder a second).

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { resolve } from "node:path";
import { writeFileSync } from "node:fs";

// The libraries are in a cache folder, and not beside this file.
const require = createRequire(`${resolve(process.env.PEERS)}/`);
const TTL = 30_000;

// Each gives a function from a name to one that takes the lock and returns what gives it back.
const PEERS = {
  redlock(urls) {
    const Redis = require("ioredis");
    const { default: Redlock } = require("redlock");
    const options = { retryCount: -1, retryDelay: 10, retryJitter: 5, automaticExtensionThreshold: 500 };
    const locks = new Redlock(urls.map((url) => new Redis(url)), options);
    return (name) => async () => {
      const lock = await locks.acquire([name], TTL);
      return () => lock.release();
    };
  },
  "redis-semaphore"(urls) {
    const Redis = require("ioredis");
    const { Mutex, RedlockMutex } = require("redis-semaphore");
    const clients = urls.map((url) => new Redis(url));
    const options = { lockTimeout: TTL, acquireTimeout: 60_000, retryInterval: 10 };
    return (name) => async () => {
      const mutex = urls.length > 1 ? new RedlockMutex(clients, name, options) : new Mutex(clients[0], name, options);
      await mutex.acquire();
      return () => mutex.release();
    };
  },
  "etcd3-node"(urls) {
    const { Etcd3 } = require("etcd3");
    const client = new Etcd3({ hosts: urls });
    return (name) => async () => {
      for (;;) {
        try {
          const lock = await client.lock(name).ttl(TTL / 1000).acquire();
          return () => lock.release();
        } catch (error) {
          if (error.constructor.name !== "EtcdLockFailedError") throw error;
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
      }
    };
  },
  "advisory-lock"(urls) {
    const { default: advisoryLock } = require("advisory-lock");
    const locks = advisoryLock(urls[0]);
    return (name) => {
      const mutex = locks(name);
      return () => mutex.lock();
    };
  },
  "proper-lockfile"(urls) {
    const { lock } = require("proper-lockfile");
    const options = { realpath: false, retries: { retries: 10_000, minTimeout: 10, maxTimeout: 10 } };
    return (name) => async () => {
      const file = `${urls[0]}/${name}.proper`;
      writeFileSync(file, "");
      return lock(file, options);
    };
  },
};

const seconds = () => performance.now() / 1000;

async function pair(make, times) {
  const take = make("pair");
  const micros = [];
  for (let turn = 0; turn < times; turn += 1) {
    const began = seconds();
    await (await take())();
    micros.push((seconds() - began) * 1e6);
  }
  micros.sort((one, other) => one - other);
  return { value: micros[times >> 1] };
}

const all = (tasks, work) => Promise.all(Array.from({ length: tasks }, (_, task) => work(task)));

async function distinct(make, tasks, times) {
  const began = seconds();
  await all(tasks, async (task) => {
    const take = make(`lock${task}`);
    for (let turn = 0; turn < times; turn += 1) await (await take())();
  });
  return { value: (tasks * times) / (seconds() - began) };
}

async function round(make, tasks, milliseconds) {
  const began = seconds();
  const lasts = milliseconds / 1000;
  const grants = new Array(tasks).fill(0);
  let last, changes = 0, wait = 0;
  await all(tasks, async (task) => {
    const take = make("round");
    while (seconds() - began < lasts) {
      const asked = seconds();
      const give = await take();
      const now = seconds();
      // What is granted after the end was waited for by those who are late.
      if (now - began < lasts) {
        changes += last !== task;
        last = task;
        grants[task] += 1;
      }
      wait = Math.max(wait, now - asked);
      await give();
    }
  });
  const sum = grants.reduce((one, other) => one + other, 0);
  const squares = grants.reduce((one, other) => one + other * other, 0);
  return { value: changes / lasts, jain: (sum * sum) / (tasks * Math.max(1, squares)), longest_wait_ms: wait * 1000 };
}

const MEASURES = { pair, distinct, round };
const [peer, ...urls] = process.argv.slice(2);
const make = PEERS[peer](urls);
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [measure, ...numbers] = line.split(" ");
  console.log(JSON.stringify(await MEASURES[measure](make, ...numbers.map(Number))));
}
process.exit(0);

// Takes one turn of prom-client at a workload of the Rust program of the same name, and prints a JSON
// line for each figure. For a workload that it does not know, it prints nothing.
//
// It has figures for one thread: each worker of Node.js has its own metrics. A counter on a handle is
// one without labels. With labels, prom-client joins them to a key at each call, also on the object
// that `labels()` returns.

import { createRequire } from 'node:module';
import { performance } from 'node:perf_hooks';
import prometheus from 'prom-client';

const { version } = createRequire(import.meta.url)('prom-client/package.json');
const SUBJECT = `prom-client ${version} (Node.js)`;

const KINDS = ['user', 'internal', 'network'];
const ROUTES = [
  '/api/v1/users', '/api/v1/users/:id', '/api/v1/products', '/api/v1/products/:id',
  '/api/v1/products/:id/owner', '/api/v1/products/:id/purchase',
];
const BOUNDS = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128];

/** The length of the tables that a loop cycles through. */
const INPUTS = 4096;

const WORKLOADS = { handle, route, user, histogram, encode };

function counter(labelNames, registry) {
  return new prometheus.Counter({
    name: 'http_request_errors_total',
    help: 'Errors of HTTP requests.',
    labelNames,
    registers: registry ? [registry] : [],
  });
}

function handle(turn) {
  const errors = counter([]);
  time(turn, 'handle/add', (n) => {
    for (let i = 0; i < n; i++) errors.inc();
  });
}

function route(turn) {
  const errors = counter(['kind', 'route']);
  const table = pairs();
  time(turn, 'enum and known text/add', (n) => {
    for (let i = 0; i < n; i++) errors.inc(table[i % INPUTS]);
  });
}

function user(turn) {
  const errors = counter(['kind', 'route', 'user']);
  const keys = users(turn.series(18_000));
  for (const key of keys) errors.inc(key);
  let next = 0;
  time(turn, `three labels/add among ${commas(keys.length)}`, (n) => {
    for (let i = 0; i < n; i++) {
      errors.inc(keys[next]);
      next = next + 1 === keys.length ? 0 : next + 1;
    }
  });
}

function histogram(turn) {
  const seconds = (labelNames) => new prometheus.Histogram({
    name: 'http_request_seconds', help: 'Time to answer.', labelNames, buckets: BOUNDS, registers: [],
  });
  const values = Array.from({ length: INPUTS }, () => 0.0005 * 2 ** (9 * random()));
  const one = seconds([]);
  time(turn, 'histogram/observe', (n) => {
    for (let i = 0; i < n; i++) one.observe(values[i % INPUTS]);
  });
  const family = seconds(['kind', 'route']);
  const table = pairs();
  time(turn, 'histogram/observe among 18', (n) => {
    for (let i = 0; i < n; i++) family.observe(table[i % INPUTS], values[i % INPUTS]);
  });
}

async function encode(turn) {
  for (const series of new Set([turn.series(18_000), turn.series(100_000)])) {
    const registry = new prometheus.Registry();
    const errors = counter(['kind', 'route', 'user'], registry);
    for (const key of users(series)) errors.inc(key);
    // The first scrapes compile the code.
    for (let i = 0; i < 5; i++) await registry.metrics();
    const start = performance.now();
    let scrapes = 0;
    while (scrapes === 0 || performance.now() - start < turn.milliseconds) {
      await registry.metrics();
      scrapes++;
    }
    const nanos = ((performance.now() - start) * 1e6) / scrapes / series;
    print(`encode/${commas(series)} series`, 'time', nanos);
  }
}

function pairs() {
  return Array.from({ length: INPUTS }, () => ({ kind: pick(KINDS), route: pick(ROUTES) }));
}

/** The labels of each series, in random order. */
function users(series) {
  const keys = Array.from({ length: series }, (_, i) => ({
    kind: pick(KINDS), route: pick(ROUTES), user: `Gisela Hernandez ${String(i).padStart(3, '0')}`,
  }));
  for (let i = series - 1; i > 0; i--) {
    const other = Math.floor(random() * (i + 1));
    [keys[i], keys[other]] = [keys[other], keys[i]];
  }
  return keys;
}

/** A xorshift generator, which yields the same numbers in each turn. */
let state = 0x9e3779b9;
function random() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 2 ** 32;
}

function pick(texts) {
  return texts[Math.floor(random() * texts.length)];
}

function commas(number) {
  return number.toLocaleString('en-US');
}

/** The time of an operation; `body(n)` does n of them. It runs until its code is compiled. */
function time(turn, name, body) {
  const once = (n) => {
    const start = performance.now();
    body(n);
    return performance.now() - start;
  };
  let n = 1;
  while (once(n) < turn.milliseconds / 4) n *= 4;
  for (let i = 0; i < 10; i++) once(n);
  n = Math.max(1, Math.round((n * turn.milliseconds) / once(n)));
  print(name, 'core time', (once(n) * 1e6) / n);
}

function print(name, metric, nanos) {
  const values = { median: nanos, min: nanos, max: nanos, runs: 1 };
  const label = { case: name, subject: SUBJECT, threads: 1, metric, unit: 'ns' };
  process.stdout.write(`${JSON.stringify({ ...label, ...values })}\n`);
}

const quick = process.argv.includes('--quick');
const workload = process.argv[process.argv.indexOf('-workload') + 1];
const turn = {
  milliseconds: quick ? 2 : 60,
  series: (full) => (quick ? Math.max(Math.floor(full / 200), 100) : full),
};
await WORKLOADS[workload]?.(turn);

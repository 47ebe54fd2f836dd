// Node.js with a grown heap, timers, a worker thread and file reads: node heap.js STEPS
const { Worker, isMainThread, parentPort } = require("node:worker_threads");
const fs = require("node:fs/promises");

async function main(steps) {
  const worker = new Worker(__filename.endsWith(".js") ? __filename : process.argv[1]);
  let answer;
  worker.on("message", (number) => answer(number));
  const heap = new Map();
  for (let n = 0; n < 300_000; n++) heap.set(n, { n, text: `entry ${n}` });
  for (let step = 0; step < steps; step++) {
    for (let n = step % 1000; n < heap.size; n += 1000)
      if (heap.get(n).text !== `entry ${n}`) throw new Error(`entry ${n}`);
    await fs.writeFile("/tmp/heap.txt", String(step));
    if ((await fs.readFile("/tmp/heap.txt", "utf8")) !== String(step)) throw new Error("file");
    const doubled = new Promise((resolve) => (answer = resolve));
    worker.postMessage(step);
    if ((await doubled) !== 2 * step) throw new Error("worker");
    console.log("ok", step);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  process.exit(0);
}

if (isMainThread) main(Number(process.argv[2]));
else parentPort.on("message", (number) => parentPort.postMessage(2 * number));

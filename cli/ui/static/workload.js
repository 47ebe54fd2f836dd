// One workload: why, interruptions, timeline, logs, checkpoints.
import {Failure, Link, Phase, amounts, dollars, get, html, moment, since, span, useEffect, useLive, useNow, useRef, useState, withQuery} from "./core.js";
import {Action, workloadAddress} from "./dialog.js";
import {Lanes, interruptions} from "./lanes.js";

const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"]);
const RUNNING = new Set(["RUNNING", "CHECKPOINTING", "RECOVERING"]);
const AT_WORK = new Set(["RUNNING", "CHECKPOINTING"]);
const NEWEST = 20_000; // characters of a log

export function WorkloadPage({id}) {
  const base = `/api/workloads/${encodeURIComponent(id)}`;
  const {data: found, error, renew} = useLive(base, 2);
  const ended = found && ENDED.has(found.phase);
  const {data: timeline} = useLive(found && `${base}/events`, ended ? 15 : 2);
  const waits = found && !ended && !AT_WORK.has(found.phase);
  const {data: answer} = useLive(waits && `${base}/why`, 4);
  const {data: checkpoints} = useLive(found && `${base}/checkpoints`, 10);
  const now = useNow();
  if (!found) return html`<section><h1>${id}</h1><${Failure} error=${error} />${!error && html`<p class="muted">…</p>`}</section>`;
  const verbs = ended ? [] : [
    ...(RUNNING.has(found.phase) ? ["checkpoint", "migrate", "requeue"] : []),
    ...(RUNNING.has(found.phase) && found.capacity !== "on-demand" ? ["drill"] : []),
    ...(found.phase === "PENDING" ? [found.held ? "release" : "hold", "reprioritize"] : []),
    "cancel",
  ];
  const events = timeline?.items || [];
  const moves = interruptions(events);
  return html`<section class="workload">
    <header class="title"><h1>${found.name} <${Phase} phase=${found.phase} /></h1>
      <p class="muted"><code>${found.id}</code> in <${Link} href=${withQuery("/workloads", {queue: found.queue})}>${found.queue}<//>, submitted by ${found.user}, generation ${found.generation}</p>
      <div class="actions">${verbs.map((verb) => html`<${Action} key=${verb} verb=${verb} items=${[found]} address=${workloadAddress(verb)} onDone=${renew} />`)}</div>
    </header>
    <${Failure} error=${error} />
    ${answer && waits && html`<${Why} answer=${answer} />`}
    ${found.errors?.length > 0 && html`<div class="card bad"><h2>Rejected</h2>${found.errors.map((one) => html`<p><code>${one.field}</code> ${one.message}</p>`)}</div>`}
    ${moves.length > 0 && html`<div class="card"><h2>Interruptions</h2>${moves.slice().reverse().map((one) => html`<${Lanes} key=${one.at} interruption=${one} />`)}</div>`}
    <div class="columns">
      <div class="card"><h2>State</h2><dl>${facts(found, now).map(([label, value]) => value && html`<dt>${label}</dt><dd>${value}</dd>`)}</dl>
        ${found.time?.parts?.length > 0 && html`<${TimeBar} parts=${found.time.parts} total=${found.time.seconds} />`}</div>
      <div class="card"><h2>Timeline</h2><ol class="timeline">${events.slice().reverse().map((event) => html`<li>
        <time>${moment(event.at).slice(11)}</time><span class=${`event event-${event.what.toLowerCase()}`}>${event.what}</span><span class="muted">${event.message}</span></li>`)}</ol></div>
    </div>
    <${Logs} base=${base} live=${!ended} />
    ${checkpoints?.items?.length > 0 && html`<div class="card"><h2>Checkpoints</h2><div class="scroll"><table><thead><tr><th>Time</th><th class="number">Gen</th><th>Driver</th><th class="number">MB</th><th>Address</th></tr></thead>
      <tbody>${checkpoints.items.map((one) => html`<tr><td>${moment(one.at)}</td><td class="number">${one.generation}</td><td>${one.driver}</td><td class="number">${(one.size / 1e6).toFixed(1)}</td><td><code>${one.removed ? "removed" : one.uri}</code></td></tr>`)}</tbody></table></div></div>`}
  </section>`;
}

const facts = (found, now) => [
  ["Reason", found.reason && html`<strong>${found.reason.code}</strong> ${found.reason.message}`],
  ["Request", amounts(found.request)],
  ["ClusterQueue", found.clusterQueue],
  ["Priority", String(found.priority)],
  ["Waited", span(found.waitedMs / 1000)],
  ["Ran", since(found.startedAt, found.finishedAt || now)],
  ["Machine", [found.instance, found.capacity, found.zone].filter(Boolean).join(", ")],
  ["Cluster", found.cluster],
  ["Moves", found.recoveries ? String(found.recoveries) : ""],
  ["Last checkpoint", found.lastCheckpointAt && `${since(found.lastCheckpointAt, now)} ago`],
  ["Cost", dollars(found.costUsd)],
  ["Saved by spot", found.savedUsd ? dollars(found.savedUsd) : ""],
  ["Result", found.result && [found.result.reason, found.result.message].filter(Boolean).join(": ")],
];

function TimeBar({parts, total}) {
  return html`<div class="timebar" role="img" aria-label=${parts.map((part) => `${part.what} ${span(part.seconds)}`).join(", ")}>
    ${parts.filter((part) => part.seconds > 0).map((part) => html`<span class=${`part part-${part.what}`} style=${{flexGrow: part.seconds / (total || 1)}} title=${`${part.what}: ${span(part.seconds)}`}></span>`)}</div>
    <p class="legend">${parts.filter((part) => part.seconds > 0).map((part) => html`<span><i class=${`part-${part.what}`}></i>${part.what} ${span(part.seconds)}</span>`)}</p>`;
}

function Why({answer}) {
  const wait = answer.approximateWaitSeconds;
  return html`<div class="card why"><h2>Why it does not run</h2>
    <p class="headline">${answer.headline}</p>
    ${answer.position && html`<p>Position ${answer.position} of ${answer.waiting} in ${answer.clusterQueue}${wait ? `; about ${span(wait.least)}${wait.most ? ` to ${span(wait.most)}` : " or more"}` : ""}</p>`}
    ${answer.quota?.length > 0 && html`<div class="scroll"><table><thead><tr><th>Flavor</th><th>Resource</th><th class="number">Request</th><th class="number">Nominal</th><th class="number">Used</th><th class="number">Available</th></tr></thead>
      <tbody>${answer.quota.map((line) => html`<tr><td>${line.flavor}</td><td>${line.resource}</td><td class="number">${line.request}</td><td class="number">${line.nominal}</td><td class="number">${line.used}</td><td class="number">${line.available}</td></tr>`)}</tbody></table></div>`}
    ${[["holders", "Held by"], ["ahead", "Ahead in the queue"]].map(([key, label]) => answer[key]?.length > 0 && html`<h3>${label}</h3>
      <ul>${answer[key].map((one) => html`<li><${Link} href=${`/workloads/${one.id}`}>${one.name || one.id}<//> <span class="muted">${one.queue}, ${amounts(one.request)}</span></li>`)}</ul>`)}
    ${answer.wouldHelp?.length > 0 && html`<h3>What would admit it</h3><ul>${answer.wouldHelp.map((step) => html`<li>${step}</li>`)}</ul>`}
  </div>`;
}

function Logs({base, live}) {
  const {data, error} = useLive(`${base}/logs`, live ? 4 : 30);
  const [key, setKey] = useState("");
  const [text, setText] = useState("");
  const logs = data?.items || [];
  const name = (log) => `${log.generation} ${log.pod} ${log.container}`;
  const log = logs.find((one) => name(one) === key) || logs[logs.length - 1];
  const current = log && name(log);
  const area = useRef(null);
  useEffect(() => {
    if (!log) return undefined;
    let alive = true;
    let offset = 0;
    setText("");
    const read = async () => {
      let more = true;
      while (alive && more) {
        const {generation, pod, container} = log;
        const part = await get(withQuery(`${base}/logs`, {generation: String(generation), pod, container, offset: String(offset)})).catch(() => ({text: "", offset, more: false}));
        offset = part.offset;
        more = part.more;
        if (alive && part.text) setText((known) => (known + part.text).slice(-NEWEST));
      }
    };
    read();
    const timer = live ? setInterval(read, 2000) : 0;
    return () => {
      alive = false;
      clearInterval(timer);
    };
  }, [current, live]);
  useEffect(() => {
    if (area.current) area.current.scrollTop = area.current.scrollHeight;
  }, [text]);
  return html`<div class="card"><h2>Logs ${logs.length > 1 && html`<select aria-label="log" value=${current} onChange=${(event) => setKey(event.target.value)}>
      ${logs.map((one) => html`<option value=${name(one)} selected=${name(one) === current}>generation ${one.generation}: ${one.pod}/${one.container}</option>`)}</select>`}</h2>
    <${Failure} error=${error} />
    <pre ref=${area} class="log" tabindex="0" aria-label="log text">${text || (log ? "no text yet" : "no logs yet")}</pre></div>`;
}

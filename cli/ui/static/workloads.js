// The list of workloads: filters, groups, bulk actions. The view is in the address.
import {Empty, Failure, Link, Phase, amounts, dollars, get, go, html, since, span, useEffect, useLive, useMemo, useNow, useRef, useState, withQuery} from "./core.js";
import {Action, workloadAddress} from "./dialog.js";

const PHASES = ["PENDING", "ADMITTED", "STARTING", "RUNNING", "CHECKPOINTING", "RECOVERING", "SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"];
const GROUPS = {
  "": "no groups",
  phase: "phase",
  reason: "reason",
  queue: "queue",
  user: "user",
  cluster: "cluster",
};
const PAGE = 100;
const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"]);

const groupOf = (workload, by) => (by === "reason" ? workload.reason?.code : workload[by]) || "none";

export function Workloads({query}) {
  const {queue = "", state = "", name = "", user = "", selector = "", group = ""} = query;
  const filters = {queue, state, name, user, selector};
  const {data, error, renew} = useLive(withQuery("/api/workloads", {...filters, limit: PAGE}));
  const [older, setOlder] = useState({key: "", items: [], cursor: null});
  const [chosen, setChosen] = useState(() => new Set());
  const now = useNow();
  const first = useRef(null);
  const key = JSON.stringify(filters);
  useEffect(() => {
    const focusFilter = (event) => {
      if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      first.current?.focus();
    };
    addEventListener("keydown", focusFilter);
    return () => removeEventListener("keydown", focusFilter);
  }, []);
  const change = (changes) => go(withQuery("/workloads", {...filters, group, ...changes}), true);
  const extra = older.key === key ? older : {items: [], cursor: null};
  const items = useMemo(() => {
    const known = new Map([...(data?.items || []), ...extra.items].map((item) => [item.id, item]));
    return [...known.values()];
  }, [data, extra.items]);
  const cursor = extra.items.length ? extra.cursor : data?.cursor;
  const more = async () => {
    const page = await get(withQuery("/api/workloads", {...filters, limit: PAGE, cursor}));
    setOlder({key, items: [...extra.items, ...page.items], cursor: page.cursor});
  };
  const selected = items.filter((item) => chosen.has(item.id));
  const groups = new Map();
  for (const item of items) {
    const label = group ? groupOf(item, group) : "";
    groups.set(label, [...(groups.get(label) || []), item]);
  }
  const toggle = (ids, on) => {
    const next = new Set(chosen);
    ids.forEach((id) => (on ? next.add(id) : next.delete(id)));
    setChosen(next);
  };
  const field = (label, name, value, hint, ref) => html`<label>${label}
    <input ref=${ref} value=${value} placeholder=${hint} onChange=${(event) => change({[name]: event.target.value.trim()})} /></label>`;
  const filtered = Object.values(filters).some(Boolean);

  return html`<section>
    <header class="title"><h1>Workloads</h1>
      <p class="muted">${items.length}${cursor ? "+" : ""} shown; unfinished and of the last 24 hours. <kbd>/</kbd> filters.</p></header>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${field("Name", "name", name, "exact", first)}
      ${field("Queue", "queue", queue, "namespace/queue")}
      ${field("User", "user", user, "role or user")}
      ${field("Labels", "selector", selector, "a=b,c=d")}
      <label>Phase <select aria-label="Phase" value=${state} onChange=${(event) => change({state: event.target.value})}>
        <option value="">all</option>${PHASES.map((phase) => html`<option value=${phase} selected=${phase === state}>${phase}</option>`)}</select></label>
      <label>Group by <select aria-label="Group by" value=${group} onChange=${(event) => change({group: event.target.value})}>
        ${Object.entries(GROUPS).map(([value, label]) => html`<option value=${value} selected=${value === group}>${label}</option>`)}</select></label>
      ${filtered && html`<button type="button" onClick=${() => go(withQuery("/workloads", {group}), true)}>clear</button>`}
    </form>
    <${Failure} error=${error} />
    <div class=${`bulk ${selected.length ? "on" : ""}`} aria-live="polite">
      <span>${selected.length} selected</span>
      ${["hold", "release", "requeue", "reprioritize", "cancel"].map((verb) => html`<${Action} key=${verb} verb=${verb} items=${selected}
        disabled=${!selected.length} address=${workloadAddress(verb)} onDone=${renew} />`)}
    </div>
    ${data && !items.length && html`<${Empty} title=${filtered ? "No workload matches" : "No workloads"}>
      ${filtered ? "Clear the filters to see the others." : "sluice submit -f job.yaml sends one."}<//>`}
    ${items.length > 0 && html`<div class="scroll"><table>
        <thead><tr><th class="tick"><input type="checkbox" aria-label="select all" checked=${items.every((item) => chosen.has(item.id))}
            onChange=${(event) => toggle(items.map((item) => item.id), event.target.checked)} /></th>
          <th>Name</th><th>Phase</th><th>Reason</th><th class="number">Pos</th><th>Queue</th><th>Request</th>
          <th class="number">Waited</th><th class="number">Ran</th><th class="number">Moves</th><th>Machine</th><th class="number">Cost</th><th class="number">Age</th></tr></thead>
        ${[...groups].sort(([a], [b]) => a.localeCompare(b)).map(([label, members]) => html`<tbody key=${label}>
        ${group && html`<tr class="group"><th colspan="13" scope="rowgroup">${label} <span class="count">${members.length}${cursor ? "+" : ""}</span></th></tr>`}
        ${members.map((item) => html`<${Row} key=${item.id} item=${item} now=${now} chosen=${chosen.has(item.id)} toggle=${toggle} />`)}</tbody>`)}
      </table></div>`}
    ${cursor && html`<p><button onClick=${more}>show older</button></p>`}
  </section>`;
}

function Row({item, now, chosen, toggle}) {
  return html`<tr class=${ENDED.has(item.phase) ? "ended" : ""}>
    <td class="tick"><input type="checkbox" aria-label=${`select ${item.name}`} checked=${chosen} onChange=${(event) => toggle([item.id], event.target.checked)} /></td>
    <td><${Link} href=${`/workloads/${item.id}`}><strong>${item.name}</strong><//> <code class="muted">${item.id}</code></td>
    <td><${Phase} phase=${item.phase} /></td>
    <td title=${item.reason?.message}>${item.reason?.code || ""}</td>
    <td class="number">${item.position || ""}</td>
    <td>${item.queue}</td><td>${amounts(item.request)}</td>
    <td class="number">${span(item.waitedMs / 1000)}</td>
    <td class="number">${since(item.startedAt, item.finishedAt || now)}</td>
    <td class="number">${item.recoveries || ""}</td>
    <td>${[item.instance, item.capacity].filter(Boolean).join(" ")}</td>
    <td class="number">${item.costUsd ? dollars(item.costUsd) : ""}</td>
    <td class="number">${since(item.createdAt, now)}</td></tr>`;
}

// The overview: states, who waits and why, dollars, machines, recoveries.
import {Empty, Failure, Link, Phase, dollars, html, span, useLive, withQuery} from "./core.js";

export function Overview() {
  const {data, error} = useLive("/api/status", 3);
  const {data: queues} = useLive("/api/queues", 5);
  if (!data) return html`<section><h1>Overview</h1><${Failure} error=${error} /></section>`;
  const {states, ended24h, pending, oldestPending: oldest, workloads, machines, recoveries24h: recovered} = data;
  const active = Object.values(states).reduce((sum, count) => sum + count, 0);
  const most = Math.max(1, ...pending.map((reason) => reason.count));
  return html`<section>
    <header class="title"><h1>Overview</h1></header>
    <${Failure} error=${error} />
    <div class="tiles">
      <div class="card figure"><span>active workloads</span><strong>${active}</strong><p>${Object.entries(states).map(([phase, count]) => html`<${Link} href=${withQuery("/workloads", {state: phase})}>${count} <${Phase} phase=${phase} /><//> `)}</p></div>
      <div class="card figure"><span>dollars per hour</span><strong>${dollars(workloads.usdPerHour)}</strong><p class="muted">${workloads.spotShare === null ? "no running machine has a known kind" : `${Math.round(workloads.spotShare * 100)} % of the CPU on spot`}${workloads.unpriced ? `; ${workloads.unpriced} without a price` : ""}</p></div>
      <div class="card figure"><span>machines ready</span><strong>${machines.ready}<small> of ${machines.nodes}</small></strong><p class="muted">${machines.spot} spot, ${dollars(machines.usdPerHour)} per hour</p></div>
      <div class="card figure"><span>recoveries in 24 h</span><strong>${recovered.count}</strong><p class="muted">${span(recovered.lostWorkSeconds)} of work redone${recovered.lossesUntold ? `; unknown for ${recovered.lossesUntold}` : ""}</p></div>
    </div>
    <div class="columns">
      <div class="card"><h2>Waiting, by reason</h2>
        ${pending.length ? html`<ul class="bars">${pending.map((reason) => html`<li><${Link} href=${withQuery("/workloads", {state: "PENDING", group: "reason"})}>
          <span>${reason.code || "not considered yet"}</span><i style=${{width: `${(100 * reason.count) / most}%`}}></i><b>${reason.count}</b><//></li>`)}</ul>` : html`<p class="muted">No workload waits.</p>`}
        ${oldest && html`<h3>Oldest</h3><p><${Link} href=${`/workloads/${oldest.id}`}>${oldest.name}<//> for ${span(oldest.seconds)}<br /><span class="muted">${oldest.reason?.message}</span></p>`}</div>
      <div class="card"><h2>Ended in 24 hours</h2>
        ${Object.keys(ended24h).length ? html`<ul class="plain">${Object.entries(ended24h).map(([phase, count]) => html`<li><${Link} href=${withQuery("/workloads", {state: phase})}>${count} <${Phase} phase=${phase} /><//></li>`)}</ul>` : html`<p class="muted">Nothing ended.</p>`}
        <h2>Queues</h2>${queues?.items?.length ? html`<ul class="plain">${queues.items.slice(0, 8).map((queue) => html`<li><${Link} href=${withQuery("/quota", {queue: queue.name})}>${queue.name}<//> <span class="muted">${queue.running} running, ${queue.pending} waiting</span></li>`)}</ul>` : html`<p class="muted">No queues.</p>`}</div>
    </div>
    ${!active && !Object.keys(ended24h).length && html`<${Empty} title="Nothing has run yet">sluice submit -f job.yaml sends a workload.<//>`}
  </section>`;
}

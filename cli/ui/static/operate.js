// Operate: checks, dead letters, ledgers, clusters.
import {Failure, html, post, useLive} from "./core.js";
import {Action} from "./dialog.js";

export function Operate() {
  const {data: checks, error} = useLive("/api/doctor", 15);
  const {data: letters, error: hidden} = useLive("/api/dead-letters", 15);
  const {data: ledgers} = useLive("/api/ledgers", 15);
  const {data: clusters, renew} = useLive("/api/catalog/Cluster", 15);
  const plan = (name) => () => post(`/api/clusters/${encodeURIComponent(name)}/drain`, {dryRun: true, reason: ""}).then((found) =>
    `${found.requeued} workload(s) would leave${found.nowhere ? `; ${found.nowhere} of them would wait, since no other cluster has their flavor` : ""}.`);
  return html`<section>
    <header class="title"><h1>Operate</h1></header>
    <div class="columns">
      <div class="card"><h2>Checks</h2><${Failure} error=${error} />
        <ul class="checks">${(checks?.items || []).map((one) => html`<li><span class=${`result result-${one.result}`}>${one.result}</span><strong>${one.check}</strong> ${one.message}${one.advice && html`<div class="muted">${one.advice}</div>`}</li>`)}</ul></div>
      <div><div class="card"><h2>Clusters</h2>
        ${(clusters?.items || []).map((cluster) => { const item = {id: cluster.metadata.name, name: cluster.metadata.name}; return html`<p class="cluster"><strong>${item.name}</strong>
          ${["cordon", "uncordon", "drain"].map((verb) => html`<${Action} key=${verb} verb=${verb} items=${[item]} plan=${verb === "drain" ? plan(item.name) : undefined}
            address=${() => `/api/clusters/${encodeURIComponent(item.name)}/${verb}`} onDone=${renew} />`)}</p>`; })}</div>
      <div class="card"><h2>Dead letters</h2><${Failure} error=${hidden} />
        <ul class="plain">${(letters?.items || []).map((queue) => html`<li><span class=${`result result-${queue.count ? "fail" : "ok"}`}>${queue.count}</span> ${queue.queue}${queue.count ? html`<div class="muted">${queue.advice}</div>` : ""}</li>`)}</ul></div>
      <div class="card"><h2>Ledgers</h2><ul class="plain">${(ledgers?.items || []).map((ledger) => html`<li><span class=${`result result-${ledger.differences ? "fail" : "ok"}`}>${ledger.differences ? "differs" : "ok"}</span> ${ledger.root} <span class="muted">version ${ledger.version}, ${ledger.reservations} reservations</span></li>`)}</ul></div></div>
    </div></section>`;
}

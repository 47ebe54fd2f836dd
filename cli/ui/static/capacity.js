// Capacity and cost: NodePools, the quarantine, and what dollars were for.
import {Empty, Failure, Link, dollars, go, html, span, useLive, useNow, withQuery} from "./core.js";

const PARTS = ["useful", "redone", "starting", "failed"];
const WINDOWS = {"1h": 3600, "24h": 86400, "7d": 604800};

export function Capacity({query}) {
  const {data, error} = useLive("/api/capacity", 5);
  const by = query.by || "queue";
  const window = WINDOWS[query.window] ? query.window : "24h";
  const start = Math.floor((Date.now() - WINDOWS[window] * 1000) / 60_000) * 60_000;
  const {data: costs, error: failed} = useLive(withQuery("/api/costs", {by, since: String(start)}), 15);
  const now = useNow(5000);
  const select = (changes) => go(withQuery("/capacity", {by, window, ...changes}), true);
  const pools = data?.items || [];
  const groups = [...(costs?.items || [])].sort((a, b) => b.total.usd - a.total.usd);
  const most = Math.max(1e-9, ...groups.map((group) => group.total.usd));
  const whole = groups.reduce((sum, group) => sum + group.total.usd, 0);
  return html`<section>
    <header class="title"><h1>Capacity and cost</h1></header>
    <${Failure} error=${error || failed} />
    <div class="card"><h2>Cost <small>${dollars(whole)}</small></h2>
      <div class="tabs"><span>by</span>${["queue", "user", "namespace", "flavor", "workload"].map((name) => html`<button aria-pressed=${name === by} onClick=${() => select({by: name})}>${name}</button>`)}
        <span>in the last</span>${Object.keys(WINDOWS).map((name) => html`<button aria-pressed=${name === window} onClick=${() => select({window: name})}>${name}</button>`)}</div>
      ${groups.length ? html`<p class="legend">${PARTS.map((part) => html`<span><i class=${`part-${part}`}></i>${part}</span>`)}</p>
      <ul class="costs">${groups.slice(0, 25).map((group) => html`<li><span class="label">${by === "workload" ? html`<${Link} href=${`/workloads/${group.key}`}>${group.key}<//>` : group.key || "-"}</span>
        <span class="stack" style=${{width: `${(60 * group.total.usd) / most}%`}} title=${PARTS.map((part) => `${part} ${dollars(group.parts[part].usd)}`).join(", ")}>
        ${PARTS.map((part) => group.parts[part].usd > 0 && html`<i class=${`part-${part}`} style=${{flexGrow: group.parts[part].usd}}></i>`)}</span>
        <b>${dollars(group.total.usd)}</b>${group.spotSavedUsd ? html`<span class="muted"> spot saved ${dollars(group.spotSavedUsd)}</span>` : ""}</li>`)}</ul>` : html`<p class="muted">Nothing ran in this window.</p>`}</div>
    <div class="card"><h2>Machines</h2>
      ${pools.length ? html`<div class="scroll"><table><thead><tr><th>Cluster</th><th>NodePool</th><th>Capacity</th><th>Types</th><th class="number">Ready</th><th class="number">Starting</th><th class="number">Lost in 24 h</th><th>Requested of allocatable</th><th class="number">Per hour</th><th>Can be bought</th></tr></thead>
        <tbody>${pools.map((pool) => html`<tr><td>${pool.cluster}</td><td>${pool.nodepool}</td><td>${pool.capacity}</td><td>${pool.types.join(", ")}</td><td class="number">${pool.ready}</td><td class="number">${pool.provisioning || ""}</td><td class="number">${pool.interrupted24h || ""}</td><td>${pool.requestedOfAllocatable}</td><td class="number">${dollars(pool.costPerHourUsd)}</td>
        <td>${pool.closed ? html`<span class="bad-text">${pool.closed.code}, for ${span((pool.closed.until - now) / 1000)}</span>` : "yes"}</td></tr>`)}</tbody></table></div>` : data && html`<${Empty} title="No machines">Karpenter buys them when a workload is admitted.<//>`}</div>
    ${data?.quarantine?.length > 0 && html`<div class="card"><h2>Quarantine</h2><p class="muted">Offerings where machines were lost or could not be bought.</p><div class="scroll"><table><thead><tr><th>NodePool</th><th>Type</th><th>Zone</th><th>Capacity</th><th>Cause</th><th class="number">Strikes</th><th class="number">Left</th></tr></thead>
      <tbody>${data.quarantine.map((one) => html`<tr><td>${one.nodepool}</td><td>${one.type}</td><td>${one.zone}</td><td>${one.capacity}</td><td title=${one.message}>${one.cause}</td><td class="number">${one.strikes}</td><td class="number">${span((one.until - now) / 1000)}</td></tr>`)}</tbody></table></div></div>`}
  </section>`;
}

// The quota treemap: area is nominal quota, fill is use, hatching is what is borrowed.
import {Empty, Failure, Link, go, html, quantity, short, span, useLive, withQuery} from "./core.js";

const WIDTH = 960;
const HEIGHT = 460;

function tree(queues, resource) {
  const cohorts = new Map();
  for (const queue of queues) {
    const nominal = quantity(queue.nominal[resource] || 0);
    if (!nominal && !quantity(queue.used[resource] || 0)) continue;
    const cohort = queue.cohort || "no cohort";
    cohorts.set(cohort, [...(cohorts.get(cohort) || []), {queue, nominal}]);
  }
  return {name: "all", children: [...cohorts].map(([name, children]) => ({name, children}))};
}

export function Quota({query}) {
  const {data, error} = useLive("/api/queues", 3);
  const queues = data?.items || [];
  const resources = [...new Set(queues.flatMap((queue) => Object.keys(queue.nominal)))].sort();
  const resource = resources.includes(query.resource) ? query.resource : resources[0];
  const chosen = queues.find((queue) => queue.name === query.queue);
  const root = resource && window.d3.hierarchy(tree(queues, resource)).sum((node) => (node.queue ? Math.max(node.nominal, 1e-9) : 0)).sort((a, b) => b.value - a.value);
  if (root) window.d3.treemap().size([WIDTH, HEIGHT]).paddingOuter(4).paddingTop((node) => (node.depth === 1 ? 22 : 4)).paddingInner(4).round(true)(root);
  const select = (changes) => go(withQuery("/quota", {resource, queue: query.queue, ...changes}), true);
  return html`<section>
    <header class="title"><h1>Quota</h1><p class="muted">Area is the nominal quota. Fill is what is used; hatching is borrowed from the cohort.</p></header>
    <${Failure} error=${error} />
    ${data && !queues.length && html`<${Empty} title="No queues">sluice apply -f quota.yaml creates them from Kueue's YAML.<//>`}
    ${resources.length > 0 && html`<div class="tabs" role="group" aria-label="resource">${resources.map((name) => html`<button aria-pressed=${name === resource} onClick=${() => select({resource: name})}>${name}</button>`)}</div>`}
    ${root && html`<svg class="treemap" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label=${`quota of ${resource}`}>
      <defs><pattern id="borrowed" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="borrowed-ground" width="7" height="7" /><rect class="borrowed-line" width="3" height="7" /></pattern></defs>
      ${(root.children || []).map((cohort) => html`<g key=${cohort.data.name}><rect class="cohort" x=${cohort.x0} y=${cohort.y0} width=${cohort.x1 - cohort.x0} height=${cohort.y1 - cohort.y0} rx="4" />
        <text class="small" x=${cohort.x0 + 8} y=${cohort.y0 + 15}>cohort ${cohort.data.name}</text>
        ${(cohort.children || []).map((leaf) => html`<${Tile} key=${leaf.data.queue.name} leaf=${leaf} resource=${resource}
          chosen=${chosen?.name === leaf.data.queue.name} select=${() => select({queue: leaf.data.queue.name})} />`)}</g>`)}
    </svg>`}
    ${chosen && html`<${Details} queue=${chosen} resource=${resource} />`}
    ${queues.length > 0 && html`<div class="scroll"><table><thead><tr><th>ClusterQueue</th><th>Cohort</th><th>Nominal</th><th>Used</th><th>Borrowed</th><th>Lent</th><th class="number">Pending</th><th class="number">Running</th><th class="number">Oldest</th><th>Status</th></tr></thead>
      <tbody>${queues.map((queue) => html`<tr><td><button class="link" onClick=${() => select({queue: queue.name})}>${queue.name}</button></td><td>${queue.cohort}</td>
        ${["nominal", "used", "borrowed", "lent"].map((key) => html`<td>${Object.entries(queue[key]).filter(([, value]) => value !== "0").map(([name, value]) => `${name}=${value}`).join(", ")}</td>`)}
        <td class="number">${queue.pending}</td><td class="number">${queue.running}</td><td class="number">${span(queue.oldestSeconds)}</td><td>${queue.status}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function Tile({leaf, resource, chosen, select}) {
  const {queue, nominal} = leaf.data;
  const [width, height] = [leaf.x1 - leaf.x0, leaf.y1 - leaf.y0];
  const used = quantity(queue.used[resource] || 0);
  const borrowed = quantity(queue.borrowed[resource] || 0);
  const own = nominal ? Math.min(1, (used - borrowed) / nominal) : 0;
  const beyond = nominal ? Math.min(1, borrowed / nominal) : borrowed ? 1 : 0;
  const label = `${queue.name}: ${short(used)} of ${short(nominal)} ${resource} used, ${short(borrowed)} borrowed, ${queue.pending} waiting`;
  const key = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), select());
  return html`<g class=${`tile ${chosen ? "chosen" : ""}`} tabindex="0" role="button" aria-label=${label} onClick=${select} onKeyDown=${key}>
    <title>${label}</title>
    <rect class="ground" x=${leaf.x0} y=${leaf.y0} width=${width} height=${height} rx="3" />
    <rect class="used" x=${leaf.x0} y=${leaf.y1 - height * own} width=${width} height=${height * own} rx="3" />
    ${beyond > 0 && html`<rect x=${leaf.x0} y=${leaf.y0} width=${width} height=${height * beyond} fill="url(#borrowed)" rx="3" />`}
    ${width > 90 && height > 40 && html`<text x=${leaf.x0 + 9} y=${leaf.y0 + 20} class="name">${queue.name.slice(0, Math.floor(width / 9))}</text>
      <text x=${leaf.x0 + 9} y=${leaf.y0 + 37} class="small">${short(used)} of ${short(nominal)}${queue.pending ? `, ${queue.pending} waiting` : ""}</text>`}
  </g>`;
}

function Details({queue, resource}) {
  return html`<div class="card" aria-live="polite"><h2>${queue.name}</h2>
    <p>${queue.used[resource] || 0} of ${queue.nominal[resource] || 0} ${resource} used; ${queue.borrowed[resource] || 0} borrowed, ${queue.lent[resource] || 0} lent, ${queue.available[resource] || 0} available.
      Weight ${queue.weight}, share ${queue.share}.</p>
    <p>${queue.localQueues.map((name) => html`<${Link} class="chip" href=${withQuery("/workloads", {queue: name, state: "PENDING"})}>who waits in ${name}<//> `)}
      <${Link} class="chip" href=${withQuery("/whatif", {root: queue.cohort || queue.name, queue: queue.name})}>what if its quota were another<//></p></div>`;
}

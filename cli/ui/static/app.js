// The shell: navigation, theme, and the page that the address names.
// Columns of a table stand in the page's own file (workloads.js, capacity.js, ...); those of the
// command in cli/commands (ls.py, capacity.py, ...).
import {Link, html, render, useAddress, useEffect, useLive, useState} from "./core.js";
import {Capacity} from "./capacity.js";
import {Operate} from "./operate.js";
import {Overview} from "./overview.js";
import {Quota} from "./quota.js";
import {WhatIf} from "./whatif.js";
import {WorkloadPage} from "./workload.js";
import {Workloads} from "./workloads.js";

const PAGES = [
  ["/", "Overview"],
  ["/workloads", "Workloads"],
  ["/quota", "Quota"],
  ["/whatif", "What if"],
  ["/capacity", "Capacity and cost"],
  ["/operate", "Operate"],
];

function page({path, query}) {
  const workload = /^\/workloads\/([^/]+)$/.exec(path);
  if (workload) return html`<${WorkloadPage} key=${workload[1]} id=${decodeURIComponent(workload[1])} />`;
  const views = {"/": Overview, "/workloads": Workloads, "/quota": Quota, "/whatif": WhatIf, "/capacity": Capacity, "/operate": Operate};
  return html`<${views[path] || Overview} query=${query} />`;
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") || "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = {"": "dark", dark: "light", light: ""};
  return [theme || "as the system", () => setTheme(next[theme])];
}

function App() {
  const address = useAddress();
  const {data: identity, error} = useLive("/api/identity", 60);
  const [theme, turn] = useTheme();
  const here = (path) => (path === "/" ? address.path === "/" : address.path.startsWith(path));
  return html`<a class="skip" href="#main">to the content</a>
    <nav aria-label="pages"><span class="brand">Sluice</span>
      ${PAGES.map(([path, label]) => html`<${Link} href=${path} aria-current=${here(path) ? "page" : undefined}>${label}<//>`)}
      <span class="grow"></span>
      <span class="muted who">${error ? error.message : identity ? `${identity.who}${identity.admin ? ", administrator" : ""}` : ""}</span>
      <button onClick=${turn} aria-label=${`theme: ${theme}`} title=${`theme: ${theme}`}>◐</button></nav>
    <main id="main" tabindex="-1">${page(address)}</main>`;
}

render(html`<${App} />`, document.getElementById("root"));

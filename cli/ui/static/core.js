// What every page uses: Preact, requests, the address, live data, figures.
import {html, render, useCallback, useEffect, useMemo, useRef, useState} from "./vendor/htm-preact-3.1.1.module.js";
export {html, render, useCallback, useEffect, useMemo, useRef, useState};

export class ApiFailure extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.hint = error.hint || "";
    this.errors = error.errors || [];
  }
}

async function answerOf(response) {
  const text = await response.text();
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    document = {error: {message: text || `status ${response.status}`}};
  }
  if (!response.ok) throw new ApiFailure(response.status, document.error || {message: text});
  return document;
}

export const get = (path) => fetch(path, {headers: {accept: "application/json"}}).then(answerOf);

export const post = (path, body = {}) =>
  fetch(path, {
    method: "POST",
    headers: {"content-type": "application/json", "x-sluice-ui": "1"},
    body: JSON.stringify(body),
  }).then(answerOf);

export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => value);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

// The address is the view: path and query. Links change it without a reload.
const listeners = new Set();
export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  listeners.forEach((listener) => listener());
}
addEventListener("popstate", () => listeners.forEach((listener) => listener()));

export function useAddress() {
  const read = () => ({path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search))});
  const [address, setAddress] = useState(read);
  useEffect(() => {
    const listener = () => setAddress(read());
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return address;
}

export function Link({href, children, ...rest}) {
  const follow = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(href);
  };
  return html`<a href=${href} onClick=${follow} ...${rest}>${children}</a>`;
}

// Asks again every few seconds while the page is visible. Keeps the last answer over a failure.
export function useLive(path, seconds = 3) {
  const [state, setState] = useState({data: null, error: null});
  const renew = useRef(() => {});
  useEffect(() => {
    if (!path) return undefined;
    let timer = 0;
    let alive = true;
    setState((known) => ({...known, error: null}));
    const ask = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          const data = await get(path);
          if (alive) setState({data, error: null, path});
        } catch (error) {
          if (alive) setState((known) => ({data: known.path === path ? known.data : null, error, path}));
        }
      }
      if (alive) timer = setTimeout(ask, seconds * 1000);
    };
    renew.current = ask;
    ask();
    document.addEventListener("visibilitychange", ask);
    return () => {
      alive = false;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", ask);
    };
  }, [path, seconds]);
  return {...state, renew: useCallback(() => renew.current(), [])};
}

export function useNow(milliseconds = 1000) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
  return now;
}

// Figures
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${whole % 60 ? `${whole % 60}s` : ""}`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${Math.floor((whole % 3600) / 60) || ""}${whole % 3600 >= 60 ? "m" : ""}`;
  return `${Math.floor(whole / 86400)}d${Math.floor((whole % 86400) / 3600) || ""}${whole % 86400 >= 3600 ? "h" : ""}`;
}
export const since = (from, to) => (from && to ? span((to - from) / 1000) : "");
export const dollars = (amount) =>
  amount === null || amount === undefined ? "" : `$${amount.toFixed(amount && Math.abs(amount) < 1 ? 4 : 2)}`;
export const time = (at) => new Date(at).toISOString().slice(11, 19);
export const moment = (at) => new Date(at).toISOString().replace("T", " ").slice(0, 19);
export const amounts = (request) => Object.entries(request || {}).map(([name, amount]) => `${name}=${amount}`).join(", ");

const UNITS = {m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40};
export function quantity(text) {
  const [, number, unit] = /^([0-9.eE+-]+?)([a-zA-Z]*)$/.exec(String(text)) || [];
  return number === undefined ? 0 : Number(number) * (UNITS[unit] ?? 1);
}
export const short = (value) => {
  const [divisor, unit] = [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"]].find(([least]) => value >= least) || [1, ""];
  return `${Number((value / divisor).toFixed(1))}${unit}`;
};

export const Failure = ({error}) =>
  error && html`<div class="failure" role="alert"><strong>${error.message}</strong>
    ${error.errors?.map((one) => html`<div>${one.field}: ${one.message}</div>`)}
    ${error.hint && html`<div class="muted">${error.hint}</div>`}</div>`;

export const Phase = ({phase}) => html`<span class=${`phase phase-${phase.toLowerCase()}`}>${phase}</span>`;

export const Empty = ({title, children}) => html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`;

// Keeps the figures current: fetches the same page and puts its live part in place of ours.
// The page is whole without it; nothing here computes a figure.
(() => {
  "use strict";
  const SWITCH_KEY = "forebay.refresh";
  const live = document.getElementById("live");
  const state = document.getElementById("refresh-state");
  const button = document.getElementById("refresh-switch");
  if (!live || !state || !button) return;

  const period = Number(live.dataset.refreshSeconds) * 1000;
  let isOn = sessionStorage.getItem(SWITCH_KEY) !== "off";
  let isFetching = false;

  const label = () => {
    button.textContent = `Auto refresh: ${isOn ? "on" : "off"}`;
    button.setAttribute("aria-pressed", String(isOn));
  };

  // Somebody who is reading a tooltip, selecting text or tabbing through must not lose their place.
  const isBusy = () =>
    document.hidden ||
    (document.getSelection()?.toString() ?? "") !== "" ||
    live.querySelector(":focus-visible") !== null;

  const openDetails = () => [...live.querySelectorAll("details[open][id]")].map((item) => item.id);

  const swap = (page) => {
    const fresh = page.getElementById("live");
    const freshState = page.getElementById("refresh-state");
    if (!fresh || !freshState) throw new Error("not the overview");
    for (const id of openDetails()) fresh.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
    live.replaceChildren(...fresh.childNodes);
    state.replaceChildren(...freshState.childNodes);
    state.classList.remove("bad-text");
  };

  const refresh = async () => {
    if (!isOn || isFetching || isBusy()) return;
    isFetching = true;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        location.assign(answer.url);
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      if (!state.classList.contains("bad-text")) state.append(" (could not be refreshed)");
      state.classList.add("bad-text");
    } finally {
      isFetching = false;
    }
  };

  button.addEventListener("click", () => {
    isOn = !isOn;
    sessionStorage.setItem(SWITCH_KEY, isOn ? "on" : "off");
    label();
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
  button.hidden = false;
  label();
  setInterval(refresh, period);
})();

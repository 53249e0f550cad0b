// The screens: their names, addresses and keys, in the order of the menu.

import { may, seesAll } from "./session.ts";
import type { IconName } from "./ui/icons.tsx";

export interface Place {
  path: string;
  title: string;
  icon: IconName;
  /** Typed after `g`. */
  key: string;
}

export const PLACES: Place[] = [
  { path: "", title: "Overview", icon: "overview", key: "o" },
  { path: "jobs", title: "Jobs", icon: "jobs", key: "j" },
  { path: "dead", title: "Dead letters", icon: "dead", key: "d" },
  { path: "workflows", title: "Workflows", icon: "workflows", key: "f" },
  { path: "queues", title: "Queues", icon: "queues", key: "q" },
  { path: "workers", title: "Workers", icon: "workers", key: "w" },
  { path: "limits", title: "Limits", icon: "limits", key: "l" },
  { path: "schedules", title: "Schedules", icon: "schedules", key: "s" },
  { path: "kinds", title: "Kinds", icon: "kinds", key: "k" },
  { path: "system", title: "System", icon: "system", key: "y" },
];

const OF_ALL_TENANTS = new Set(["workers", "system"]);

/** Those that whoever is signed in can see: none that would be refused. */
export function visible(): Place[] {
  return PLACES.filter((place) => {
    if (!may("read")) return place.path === "kinds";
    return seesAll() || !OF_ALL_TENANTS.has(place.path);
  });
}

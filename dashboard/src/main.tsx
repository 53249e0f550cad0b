import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./workflows.css";
import "./theme.ts";

import { render } from "preact";

import { App } from "./app.tsx";

const place = document.getElementById("app");
if (place) render(<App />, place);

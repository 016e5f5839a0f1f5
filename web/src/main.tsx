import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./App";
import { Chat } from "./state/chat";
import "./theme.css";

const root = document.getElementById("root");
if (!root) throw new Error("The page has no #root");
createRoot(root).render(
  <StrictMode>
    <App chat={new Chat()} />
  </StrictMode>,
);

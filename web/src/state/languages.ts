/** The languages whose words have colours. They come when the first code does. */

import { common, createLowlight } from "lowlight";

const lowlight = createLowlight(common);

export const knows = (language: string): boolean => lowlight.registered(language);
export const parse = (language: string, code: string): ReturnType<typeof lowlight.highlight> =>
  lowlight.highlight(language, code);

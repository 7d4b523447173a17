/** Pages of lists, in the form of the document. */

/** The number of the page, from 0, and the items of a page. */
export interface PageRequest {
  readonly page: number;
  readonly size: number;
}

export interface Page<Item> {
  readonly content: Item[];
  readonly number: number;
  readonly size: number;
  readonly totalElements: number;
}

/** Pages of lists that an operator reads. */

/** Which page, from 0, of how many items. */
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

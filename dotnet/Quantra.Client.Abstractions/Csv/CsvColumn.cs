namespace Quantra.Client;

/// <summary>A column of a table.</summary>
/// <param name="Name">As messages call it.</param>
/// <param name="Place">Counted from 0.</param>
internal readonly record struct CsvColumn(string Name, int Place);

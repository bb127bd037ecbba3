namespace Quantra.Client;

/// <summary>A column of a table.</summary>
/// <param name="Name">Name in messages.</param>
/// <param name="Index">Position, from 0.</param>
internal readonly record struct CsvColumn(string Name, int Index);

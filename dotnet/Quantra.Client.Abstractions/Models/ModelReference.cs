using System.Globalization;

namespace Quantra.Client;

/// <summary>A reference to a model: "NAME" (its default version), "NAME@VERSION" or "NAME@ALIAS".</summary>
/// <param name="Text">The reference as text.</param>
public sealed record ModelReference(string Text)
{
    /// <summary>Creates a reference to one version.</summary>
    /// <param name="name">The model's name.</param>
    /// <param name="version">Its version, from 1.</param>
    /// <returns>NAME@VERSION.</returns>
    public static ModelReference To(string name, int version) =>
        new(string.Create(CultureInfo.InvariantCulture, $"{name}@{version}"));

    /// <summary>Converts text to a reference.</summary>
    /// <param name="text">"NAME", "NAME@VERSION" or "NAME@ALIAS".</param>
    /// <returns>The reference.</returns>
    public static ModelReference FromString(string text) => new(text);

    /// <summary>Converts text to a reference.</summary>
    /// <param name="text">"NAME", "NAME@VERSION" or "NAME@ALIAS".</param>
    public static implicit operator ModelReference(string text) => new(text);

    /// <inheritdoc/>
    public override string ToString() => Text;
}

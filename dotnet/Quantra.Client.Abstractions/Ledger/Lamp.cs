namespace Quantra.Client;

/// <summary>What the outcomes so far say about a model.</summary>
public enum Lamp
{
    /// <summary>A lamp that this version of the client does not know.</summary>
    Unknown,

    /// <summary>Too few outcomes to notice a fault, or to tell which model is better.</summary>
    Learning,

    /// <summary>A fault would have been noticed, or the model is shown to be better.</summary>
    Green,

    /// <summary>The promise looks broken, but outcomes that are not due yet may change that.</summary>
    Amber,

    /// <summary>The promise is broken, or the model is shown to be worse.</summary>
    Red,
}

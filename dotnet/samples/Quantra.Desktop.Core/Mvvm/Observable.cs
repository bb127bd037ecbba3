using System.ComponentModel;
using System.Runtime.CompilerServices;

namespace Quantra.Desktop.Mvvm;

/// <summary>Tells a window which of its properties have changed.</summary>
public abstract class Observable : INotifyPropertyChanged
{
    /// <inheritdoc/>
    public event PropertyChangedEventHandler? PropertyChanged;

    /// <summary>Sets the field of a property, and tells of it where the value is another one.</summary>
    /// <returns>Whether it is.</returns>
    protected bool Set<T>(ref T field, T value, [CallerMemberName] string property = "")
    {
        if (EqualityComparer<T>.Default.Equals(field, value))
            return false;
        field = value;
        Tell(property);
        return true;
    }

    /// <summary>Tells that a property has changed that is computed from others.</summary>
    protected void Tell(string property) => PropertyChanged?.Invoke(this, new PropertyChangedEventArgs(property));
}
